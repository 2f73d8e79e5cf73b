#!/usr/bin/env bash
# Checks and times the GPU engine on a machine that has a GPU but no compiler and no network.
#
#   scripts/gpu_check.sh --prepare            # here: builds .gpu/omnidraft and the tests beside it
#   OUT=DIR scripts/gpu_check.sh              # there: runs everything in less than ten minutes
#   OUT=DIR scripts/gpu_check.sh --dry-run    # here: the same with small shapes, on software Vulkan
#
# Carry `.gpu/` to the other machine, and `.gl/` with the Debian packages of the Vulkan loader where it has
# none. What comes back in $OUT: gpu_check.json (all results), tests.txt, and log.txt.
set -uo pipefail
cd "$(dirname "$0")/.."

BIN=.gpu
if [ "${1:-}" = --prepare ]; then
    set -e
    mkdir -p "$BIN"
    # In one go, as in CI: other tests resolve other features, and dependencies would be compiled twice. The test
    # `gpu` is the one that brings the program.
    made=$(cargo test --release --locked -p runner -p gpu-engine --features runner/gpu --test goldens --test engine \
        --test gpu --no-run --message-format=json | python3 -c 'import json, sys
for line in sys.stdin:
    made = json.loads(line)
    if made.get("executable") and made["target"]["name"] == "omnidraft":
        print("omnidraft", made["executable"])
    elif made.get("executable") and "gpu-engine" in made["manifest_path"]:
        print("test-" + made["target"]["name"], made["executable"])')
    while read -r name file; do cp "$file" "$BIN/$name"; done <<<"$made"
    strip "$BIN"/*
    ls -l "$BIN"
    exit
fi

OUT="${OUT:?says where results go}"
mkdir -p "$OUT/parts"
exec > >(tee "$OUT/log.txt") 2>&1
SHAPES="llama-68m tinyllama-1.1b llama-2-7b llama-3-8b"
ROUNDS="llama-3-8b:llama-68m llama-2-7b:llama-68m"
SECONDS_EACH=2
ROUNDS_EACH=60
LAWTEST=(--prompts 20 --tokens 24)
SLOWER=1
TORCH=()
if [ "${1:-}" = --dry-run ]; then
    # Software Vulkan, where buffers are small and everything is slow.
    SHAPES=llama-68m
    ROUNDS=llama-68m:llama-68m
    SECONDS_EACH=0
    ROUNDS_EACH=2
    LAWTEST=(--prompts 2 --tokens 8)
    SLOWER=5
    TORCH=(--cpu)
fi
if ! ldconfig -p | grep -q libvulkan && [ -d .gl ]; then
    for deb in .gl/*.deb; do dpkg -x "$deb" /; done
    ldconfig
fi
nvidia-smi --query-gpu=name,driver_version,clocks.max.mem,power.limit --format=csv 2>/dev/null

# One result a command; what fails is named in its place and stops nothing.
part() {
    local name=$1 limit=$((SLOWER * $2))
    shift 2
    printf '\n== %s: %s (%s)\n' "$name" "$*" "$(date +%T)"
    if timeout "$limit" "$@" >"$OUT/parts/$name.json" 2>"$OUT/parts/$name.err"; then
        tail -c 400 "$OUT/parts/$name.json"
    else
        printf '{"failed": %s}' "$(tail -c 600 "$OUT/parts/$name.err" | python3 -c 'import json, sys; print(json.dumps(sys.stdin.read()))')" >"$OUT/parts/$name.json"
        cat "$OUT/parts/$name.json"
    fi
}

export OMNIDRAFT_REQUIRE_GPU=1 OMNIDRAFT_GOLDENS=crates/lm/tests/golden
failed=0
for test in "$BIN"/test-*; do
    timeout $((SLOWER * 150)) "$test" --nocapture --test-threads=1 >>"$OUT/tests.txt" 2>&1 || failed=1
done
grep '^test \|^adapter\|panicked' "$OUT/tests.txt" | sort | uniq -c
echo "{\"failed\": $failed}" >"$OUT/parts/tests.json"

for weights in bf16 int8 int4; do
    for shape in $SHAPES; do
        part "verify-$shape-$weights" 60 "$BIN/omnidraft" bench verify --shape "$shape" --weights "$weights" \
            --device gpu --context 128 --seconds "$SECONDS_EACH" --json
    done
done
part torch 90 python3 scripts/torch_decode_step.py $SHAPES --seconds 0.2 "${TORCH[@]}"
[ ${#TORCH[@]} = 0 ] && part torch-graphs 90 python3 scripts/torch_decode_step.py $SHAPES --seconds 0.2 --graphs
for pair in $ROUNDS; do
    for weights in bf16 int4; do
        for temperature in 0 1; do
            part "round-${pair%:*}-$weights-T$temperature" 60 "$BIN/omnidraft" bench round \
                --target-shape "${pair%:*}" --drafter-shape "${pair#*:}" --weights "$weights" --device gpu \
                --temperature "$temperature" --rounds "$ROUNDS_EACH" --json
        done
    done
done
part lawtest 120 "$BIN/omnidraft" lawtest --drafter models/D --target models/L --greedy "${LAWTEST[@]}" \
    --verify exact,tli,slem,paper,prompt-lookup --device gpu
# The loop, learning included, on streams cut short.
loop=$(mktemp -d)
short='[{target="L", task="mini-math", prompts={train=8, test=2}}, {target="L", task="mini-chat", prompts={train=8, test=2}}]'
part loop 120 "$BIN/omnidraft" run experiments/quickstart.toml --device gpu --no-progress --set "segment=$short" \
    --set decode.max_new_tokens=16 --out "$loop/run"
rm -r "$loop"

python3 - "$OUT" <<'PY'
import json, pathlib, sys
out = pathlib.Path(sys.argv[1])
parts = {}
for path in sorted((out / "parts").glob("*.json")):
    try:
        parts[path.stem] = json.loads(path.read_text())
    except ValueError:
        parts[path.stem] = {"text": path.read_text()[-2000:]}
(out / "gpu_check.json").write_text(json.dumps(parts, indent=1))
for path in (out / "parts").iterdir():
    path.unlink()
(out / "parts").rmdir()
PY
echo "gpu_check.json: $(wc -c <"$OUT/gpu_check.json") bytes (after $SECONDS s)"
exit "$failed"
