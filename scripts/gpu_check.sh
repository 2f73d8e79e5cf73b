#!/usr/bin/env bash
# Checks and times the GPU engine on a machine that has a GPU but no compiler and no network.
#
#   scripts/gpu_check.sh --prepare            # here: builds program and tests, packs them into .gpu/
#   OUT=DIR scripts/gpu_check.sh              # there: what matters first, until BUDGET seconds (450) are over
#   OUT=DIR scripts/gpu_check.sh --dry-run    # here: the same with small shapes, on software Vulkan
#
# To the other machine go `.gpu/`, the folders that --prepare names and, where that machine has no Vulkan loader,
# its Debian packages in `.gl/`. A stop at any moment loses nothing that is done: every part appends its line to
# $OUT/results.jsonl when it ends. Beside it are tests.txt and log.txt.
#   PARTS="large:int4 torch" are the parts to run, in this order; what a part is stands near the end.
#   CORES=0-5 binds all parts to these cores.
#   .gpu/programs.tar.xz may also hold omnidraft-before, an older build, which is timed beside the new one.
#   BESIDE=FILE is a script that runs on the cores BESIDE_CORES meanwhile; it finds OUT, BIN and END (seconds since
#   1970 at which it is stopped).
set -uo pipefail
cd "$(dirname "$0")/.."

# What travels beside `.gpu/`, and how much there may be in all.
TRAVELS="scripts models/L models/D experiments crates/lm/tests/golden"
MIB=60
if [ "${1:-}" = --prepare ]; then
    set -e
    mkdir -p .gpu/programs
    # In one go: other tests resolve other features, and dependencies would be compiled twice.
    made=$(cargo test --release --locked -p runner -p gpu-engine --features runner/gpu --test all --no-run \
        --message-format=json | python3 -c 'import json, sys
for line in sys.stdin:
    made = json.loads(line)
    if made.get("executable") and made["target"]["name"] == "omnidraft":
        print("omnidraft", made["executable"])
    elif made.get("executable") and "gpu-engine" in made["manifest_path"]:
        print("test-device", made["executable"])')
    while read -r name file; do strip -o ".gpu/programs/$name" "$file"; done <<<"$made"
    tar -C .gpu/programs -c . | xz -T0 >.gpu/programs.tar.xz
    rm -r .gpu/programs
    all=.gpu
    [ -d .gl ] && all="$all .gl"
    # shellcheck disable=SC2086
    du -shc $all $TRAVELS
    # shellcheck disable=SC2086
    [ "$(du -smc $all $TRAVELS | tail -n 1 | cut -f 1)" -le $MIB ] || { echo "more than $MIB MiB"; exit 1; }
    exit
fi

OUT=$(mkdir -p "${OUT:?says where results go}" && cd "$OUT" && pwd)
exec > >(tee "$OUT/log.txt") 2>&1
BEGAN=$(date +%s)
END=$((BEGAN + ${BUDGET:-450}))
WORK=$(mktemp -d)
BIN=$WORK/programs
BIG=llama-3-8b
MIDDLE=tinyllama-1.1b
SMALL=llama-68m
SECONDS_EACH=0.3
ROUNDS=60
LAWTEST=(--prompts 20 --tokens 24)
SLOWER=1
CUDA=cuda
TORCH=(--seconds 0.3 --graphs --ceilings llama-3-8b llama-68m)
if [ "${1:-}" = --dry-run ]; then
    # Software Vulkan, where buffers are small and everything is slow.
    END=$((BEGAN + ${BUDGET:-2400}))
    BIG=llama-68m
    MIDDLE=llama-68m
    SECONDS_EACH=0
    ROUNDS=2
    LAWTEST=(--prompts 2 --tokens 8)
    SLOWER=6
    KERNEL_SHAPE="256 512"
    CUDA=cpu
    TORCH=(--seconds 0 --cpu llama-68m)
fi
export OUT BIN END OMNIDRAFT_REQUIRE_GPU=1 OMNIDRAFT_GOLDENS=$PWD/crates/lm/tests/golden
BOUND=()
[ -n "${CORES:-}" ] && BOUND=(taskset -c "$CORES")

# Writes one line of results.jsonl: what a part said, as JSON where it is that.
cat >"$WORK/line.py" <<'PY'
import json, os, sys, time
results, name, rc, began, start, out, err, command = sys.argv[1:]
said, errors = (open(path, errors="replace").read() for path in (out, err))
row = {"part": name, "rc": rc, "s": round(time.time() - float(began), 1)}
row |= {"at_s": round(float(began) - float(start)), "command": command[:400]}
try:
    row["result"] = json.loads(said)
except ValueError:
    try:
        row["result"] = [json.loads(line) for line in said.splitlines() if line.strip()]
    except ValueError:
        row["text"] = said[-3000:]
if rc != "0" or "text" in row:
    row["stderr"] = errors[-3000:]
print(f"{name}: exit {rc} after {row['s']} s", *(str(row[key])[-500:] for key in ("result", "text", "stderr") if row.get(key)))
line = json.dumps(row)
# In one go: parts may end at the same moment.
to = os.open(results, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(to, (line + "\n").encode())
PY

left() { echo $((END - $(date +%s))); }

# part NAME LIMIT COMMAND..: runs it for LIMIT seconds at most and not beyond the end.
part() {
    local name=$1 limit=$((SLOWER * $2)) rc=skipped began out=$WORK/$1
    shift 2
    [ "$limit" -gt "$(left)" ] && limit=$(left)
    : >"$out.out" >"$out.err"
    began=$(date +%s.%N)
    if [ "$limit" -ge 5 ]; then
        timeout -k 5 "$limit" ${BOUND[@]+"${BOUND[@]}"} "$@" >"$out.out" 2>"$out.err"
        rc=$?
    fi
    python3 -S "$WORK/line.py" "$OUT/results.jsonl" "$name" "$rc" "$began" "$BEGAN" "$out.out" "$out.err" "$*"
    [ "$rc" = 0 ]
}

# tests NAME LIMIT PROGRAM TEST..: every test in a process of its own, all at once: shaders are compiled side by side.
tests() {
    local name=$1 limit=$2 program=$3 pids=() names=() test
    shift 3
    for test in "$@"; do
        part "$name-${test//::/-}" "$limit" "$BIN/$program" --exact --nocapture "$test" >/dev/null &
        pids+=($!)
        names+=("$test")
    done
    for i in "${!pids[@]}"; do
        wait "${pids[i]}" && echo "test ${names[i]}: ok" || { echo "test ${names[i]}: FAILED"; FAILED=1; }
        cat "$WORK/$name-${names[i]//::/-}".{out,err} >>"$OUT/tests.txt"
    done
}

PROMISES=(replays_give_the_bits_of_launches logits_that_stay_are_those_that_are_fetched two_engines_replay_in_turn
    many_columns_are_all_there)
PROMISES=("${PROMISES[@]/#/engine::}")
BITS=engine::bits_do_not_depend_on_batches_or_on_what_was_cut
for shape in odd even; do for weights in f32 f16 bf16 int8 int4; do PROMISES+=($BITS::${shape}_$weights); done; done

# others PROGRAM TEST..: the tests of a program but for these.
others() {
    local program=$1 test all
    shift
    all=$("$BIN/$program" --list 2>/dev/null | sed -n 's/: test$//p')
    for test in "$@"; do all=${all//$test/}; done
    echo "$all"
}

FAILED=0
printf '== The machine (%s s)\n' "$(left)"
unpacked() { tar -xJf .gpu/programs.tar.xz -C "$BIN" 2>/dev/null || python3 -c '
import sys, tarfile
tarfile.open(".gpu/programs.tar.xz").extractall(sys.argv[1])' "$BIN"; }
mkdir -p "$BIN"
unpacked && ls -l "$BIN"
# Opening a card that nobody holds takes seconds; this changes none of its settings.
if [ -e /dev/nvidia0 ]; then exec 9</dev/nvidia0; fi
if ls .gl/*.deb >/dev/null 2>&1 && [ "$(ldconfig -p | grep -c libvulkan)" = 0 ]; then
    for deb in .gl/*.deb; do dpkg -x "$deb" /; done
    ldconfig
fi
[ -w "${HOME:-/}" ] || export HOME=$WORK # where the driver keeps compiled shaders
part machine 20 python3 -S -c '
import json, os, platform, subprocess
said = lambda *command: subprocess.run(command, capture_output=True, text=True).stdout.strip()
fields = ["name", "driver_version", "persistence_mode", "clocks.sm", "clocks.mem", "clocks.max.sm", "clocks.max.mem",
          "power.limit", "memory.used", "pcie.link.gen.current", "pcie.link.width.current"]
try:
    smi = dict(zip(fields, said("nvidia-smi", "--query-gpu=" + ",".join(fields), "--format=csv,noheader").split(", ")))
except OSError as error:
    smi = str(error)
model = [line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")]
print(json.dumps({"gpu": smi, "cores": len(model), "cpu": model[:1], "libc": platform.libc_ver(),
    "kernel": platform.release(), "loaders": said("sh", "-c", "ldconfig -p | grep -E \"libvulkan|libEGL|libGLX_nvidia\"")}))'
if [ -n "${BESIDE:-}" ]; then
    timeout -k 5 "$(left)" ${BESIDE_CORES:+taskset -c "$BESIDE_CORES"} nice -n 10 bash "$BESIDE" >"$WORK/beside.log" 2>&1 &
    beside=$!
fi

verify() { # NAME LIMIT SHAPE WEIGHTS [PROGRAM]
    part "$1" "$2" "$BIN/${5:-omnidraft}" bench verify --shape "$3" --weights "$4" --device gpu --context 128 \
        --seconds "$SECONDS_EACH" --json
}
device() { # SHAPE WEIGHTS [OPTION]
    part "device-$1-$2" 160 "$BIN/omnidraft" bench device --shape "$1" --weights "$2" --context 128 \
        --seconds "$SECONDS_EACH" --json ${3+"$3"}
}
# The same with another build of the program, if there is one: what a change of the engine did, on one card.
before() { # SHAPE WEIGHTS
    [ ! -e "$BIN/omnidraft-before" ] || verify "before-$1-$2" 60 "$1" "$2" omnidraft-before
}
round() { # TARGET WEIGHTS TEMPERATURE [NAME]
    part "round-$1-$2-T$3${4:-}" 75 "$BIN/omnidraft" bench round --target-shape "$1" --drafter-shape $SMALL \
        --weights "$2" --device gpu --temperature "$3" --rounds "$ROUNDS" --json
}
# An adapter's name that ends like this is OpenGL's.
smoke() { verify "$1" 40 $SMALL bf16 && ! grep -q PCIe/SSE2 "$WORK/$1.out"; }

printf '\n== Does it compute at all? (%s s)\n' "$(left)"
works=1
driver=/usr/local/nvidia/share/vulkan/icd.d/nvidia_icd.json
if ! smoke smoke; then
    [ -e $driver ] || driver=$(find / -xdev -name 'nvidia_icd*.json' 2>/dev/null | head -n 1)
    export VK_DRIVER_FILES=$driver
    if ! smoke smoke-driver; then
        # Libraries that the driver may want and a machine without a display may lack.
        for deb in .gl/beside/*.deb; do dpkg -x "$deb" "$WORK/beside"; done
        if ! LD_LIBRARY_PATH=$WORK/beside/usr/lib/x86_64-linux-gnu smoke smoke-libraries; then
            works=0
            VK_LOADER_DEBUG=all verify smoke-says-why 20 $SMALL bf16
            tail -c 6000 "$WORK/smoke-says-why.err"
        else
            export LD_LIBRARY_PATH=$WORK/beside/usr/lib/x86_64-linux-gnu
        fi
    fi
fi

promises() { tests promise 200 test-device "${PROMISES[@]}"; }
large() { # WEIGHTS [OPTION]
    device $BIG "$@"
    before $BIG "$1"
}
small() {
    [ $SMALL = $BIG ] || device $SMALL bf16
    [ $SMALL = $BIG ] || before $SMALL bf16
}
answers() {
    part lawtest 60 "$BIN/omnidraft" lawtest --drafter models/D --target models/L --greedy "${LAWTEST[@]}" \
        --verify exact,tli,slem,paper,prompt-lookup --device gpu
}
rounds() { # WEIGHTS
    round $BIG "$1" 0
    round $BIG "$1" 1
}
# Divisions of single projections among the units of the device: gate and up of a block, and down.
kernels() { # WEIGHTS
    local up=${KERNEL_SHAPE:-28672 4096} down=${KERNEL_SHAPE:-4096 14336}
    division() { # NAME OUTPUTS INPUTS OPTION..
        local name=$1 outputs=$2 inputs=$3
        shift 3
        part "kernels-$name" 60 "$BIN/omnidraft" bench kernels --outputs "$outputs" --inputs "$inputs" --json "$@"
    }
    # shellcheck disable=SC2086
    {
        division "$1-up-1" $up --weights "$1" --rows 1 --units 32,64,128 --per-group 2,4,8 --groups 1
        division "$1-down-1" $down --weights "$1" --rows 1 --units 32,64,128 --per-group 2,4,8 --groups 1
        division "$1-up-5" $up --weights "$1" --rows 5 --units 32,64,128 --per-group 4,8 --groups 1,2
        division "$1-up-16" $up --weights "$1" --rows 16 --units 32,64 --per-group 4,8 --groups 1,2
    }
}
# The large shape in PyTorch, decoded by a worker, and the engine's drafter beside it.
worker() {
    local big=$WORK/big
    part lawtest-worker 60 "$BIN/omnidraft" lawtest --drafter models/D --target torch:models/L --torch-device "$CUDA" \
        --greedy "${LAWTEST[@]}" --verify exact,tli,slem,paper,prompt-lookup --drafter-device gpu
    part checkpoint 90 "$BIN/omnidraft" bench checkpoint --shape $BIG --out "$big" --shard-mb 4000 || return
    cp models/L/tokenizer*.json "$big"
    for temperature in 0 1; do
        part "round-worker-$BIG-T$temperature" 90 "$BIN/omnidraft" bench round --target "torch:$big" --torch-dtype bfloat16 \
            --torch-device "$CUDA" --drafter-shape $SMALL --drafter-device gpu --temperature "$temperature" \
            --rounds "$ROUNDS" --json
    done
    rm -r "$big"
}
torch() { part torch 60 python3 -u scripts/torch_decode_step.py "${TORCH[@]}"; }
rest() {
    # The loop, learning included, on streams cut short.
    local short='[{target="L", task="mini-math", prompts={train=8, test=2}}, {target="L", task="mini-chat", prompts={train=8, test=2}}]'
    part loop 120 "$BIN/omnidraft" run experiments/quickstart.toml --device gpu --no-progress \
        --set "segment=$short" --set decode.max_new_tokens=16 --out "$WORK/run"
    # shellcheck disable=SC2046
    tests rest 300 test-device $(others test-device "${PROMISES[@]}")
    device $BIG int8
    round $MIDDLE bf16 0
    OMNIDRAFT_GPU_REPLAY=0 round $MIDDLE bf16 0 -launched
    for tasks in 8 128; do CUBECL_WGPU_MAX_TASKS=$tasks verify "verify-$SMALL-bf16-$tasks-tasks" 30 $SMALL bf16; done
    for weights in bf16 int4; do device $MIDDLE $weights; done
}

# In this order, or in that of PARTS, whose entries are `NAME` or `NAME:ARGUMENT`.
for named in ${PARTS:-promises large:bf16 small answers rounds:bf16 large:int4 torch worker rounds:int4 kernels:int4 kernels:bf16 rest}; do
    [ $works = 1 ] || [ "$named" = torch ] || continue
    printf '\n== %s (%s s)\n' "$named" "$(left)"
    # shellcheck disable=SC2086
    ${named%%:*} $(echo "$named" | sed -n 's/^[^:]*://p' | tr : ' ')
done

if [ -n "${beside:-}" ]; then
    printf '\n== Beside it, at most %s s more\n' "$(left)"
    wait "$beside"
    echo "ended with $?"
    tail -n 30 "$WORK/beside.log"
fi

echo
python3 -S - "$OUT/results.jsonl" <<'PY'
import json, sys
print(f"{'part':<34}{'exit':>8}{'s':>8}")
for row in map(json.loads, open(sys.argv[1])):
    result = row.get("result")
    for found in result if isinstance(result, list) else [result]:
        found = found if isinstance(found, dict) else {}
        times = found.get("greedy_ms") or found.get("ms") or {}
        ms = " ".join(f"{m}:{ms:.3g}" for m, ms in sorted(times.items(), key=lambda item: int(item[0])))
        more = "".join(f" {key} {found[key]:.4g}" for key in (
            "load_s", "weights_gb_per_s", "memory_gb_per_s", "round_ms", "drafter_ms", "target_ms", "outside_share",
        ) if isinstance(found.get(key), float))
        graphs = {True: " graphs", False: " eager"}.get(found.get("graphs"), "")
        print(f"{row['part'][:33]:<34}{row['rc']:>8}{row['s']:>8.1f}{graphs}{' ' + found['shape'] if graphs else ''} {ms}{more}")
        for timed in found.get("passes") or []:
            steps = " ".join(f"{step['name'].replace(' ', '')}:{step['launches']}x{1e3 * step['ms'] / max(1, step['launches']):.1f}us"
                for step in timed["steps"])
            print(f"    {timed['rows']} rows, {timed['cubes'][1]}x{timed['cubes'][0]} outputs: {timed['launches']} launches {timed['ms']:.2f} ms "
                f"(kinds {sum(step['ms'] for step in timed['steps']):.2f}) {steps}")
PY
rm -rf "$WORK"
echo "$(wc -l <"$OUT/results.jsonl") parts, $(wc -c <"$OUT/results.jsonl") bytes, after $(($(date +%s) - BEGAN)) s"
exit $FAILED
