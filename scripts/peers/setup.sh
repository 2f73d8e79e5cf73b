#!/usr/bin/env bash
# Installs the engines compare.py measures ours against, outside the repository:
#
#   scripts/peers/setup.sh [DIR]        (default: ~/.cache/omnidraft/peers)
#
# DIR/venv gets torch, transformers, gguf and llama-cpp-python, the last compiled here for this very
# processor; DIR/llama-server is the server out of the same source. What is there already stays. JOBS sets the
# compile jobs (default 1, at low priority).
set -euo pipefail
dir="${1:-${XDG_CACHE_HOME:-$HOME/.cache}/omnidraft/peers}"
jobs="${JOBS:-1}"
mkdir -p "$dir"
python="$dir/venv/bin/python"

[ -x "$python" ] || python3 -m venv "$dir/venv"
"$python" -m pip install --quiet numpy pyarrow torch transformers safetensors gguf

# From source: a wheel would be built for the oldest processor it is to run on.
CMAKE_ARGS="-DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAVA_BUILD=OFF" \
    CMAKE_BUILD_PARALLEL_LEVEL="$jobs" \
    nice -n 19 "$python" -m pip install --no-binary llama-cpp-python llama-cpp-python

# The Python package has no drafting by another model; the server has, and the package's source holds it.
if [ ! -x "$dir/llama-server" ]; then
    "$python" -m pip install --quiet cmake ninja
    version="$("$python" -c 'import importlib.metadata; print(importlib.metadata.version("llama-cpp-python"))')"
    "$python" -m pip download --quiet --no-deps --no-binary llama-cpp-python --dest "$dir/source" "llama-cpp-python==$version"
    tar -xzf "$dir/source/"*"-$version.tar.gz" -C "$dir/source"
    PATH="$dir/venv/bin:$PATH" cmake -G Ninja -S "$dir/source/"*"-$version/vendor/llama.cpp" -B "$dir/llama" \
        -DCMAKE_BUILD_TYPE=Release -DGGML_NATIVE=ON -DLLAMA_OPENSSL=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_USE_PREBUILT_UI=OFF
    nice -n 19 "$dir/venv/bin/ninja" -C "$dir/llama" -j "$jobs" llama-server
    ln -s "$dir/llama/bin/llama-server" "$dir/llama-server"
    echo "$version" > "$dir/llama-server.version"
fi

# What llama.cpp was compiled with, against what the processor has.
"$python" - <<'END'
import llama_cpp

compiled = llama_cpp.llama_print_system_info().decode()
print(f"llama-cpp-python {llama_cpp.__version__}: {compiled}")
try:
    flags = next(line for line in open("/proc/cpuinfo") if line.startswith("flags")).split()
except (OSError, StopIteration):
    flags = []
pairs = [("avx2", "AVX2"), ("avx512f", "AVX512"), ("avx512_vnni", "AVX512_VNNI"), ("avx512_bf16", "AVX512_BF16")]
missing = [name for flag, name in pairs if flag in flags and f"{name} = 1" not in compiled]
if missing:
    raise SystemExit(f"llama.cpp was compiled without {', '.join(missing)}, which this processor has")
END
