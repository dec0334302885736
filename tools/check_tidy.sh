#!/usr/bin/env bash
# clang-tidy over the sources of the library, the command line and the Python module, with .clang-tidy's
# checks. Files of a folder are read together, as in a unity build, most of the work being headers. The
# vector kernels are left out: they are compiled once per instruction set by a header that includes
# the file itself, which clang-tidy reads as recursion. So are the emulator, which only tests build, and
# without nvcc what needs CUDA's headers.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/tidy
mkdir -p "$build"
# clang cannot read g++'s precompiled headers, so this compilation database has none.
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_C_COMPILER=clang-14 -DCMAKE_UNITY_BUILD=ON \
  -DADDER_BUILD_TESTS=OFF -DADDER_BUILD_PYTHON=ON -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >"$build/configure.log"
left_out=(-path '*/shim/*')
command -v nvcc >/dev/null || left_out+=(-o -path '*/runtime/*')
{
  python3 -c "import json; [print(c['file']) for c in json.load(open('$build/compile_commands.json'))]"
  find src/backends/cuda -name '*.cc' -not \( "${left_out[@]}" \)  # which this configuration does not build
} | xargs grep -L 'foreach_target.h' |
  xargs -P "$(nproc)" -n 1 clang-tidy-14 --quiet --checks=-bugprone-suspicious-include -p "$build" >"$build/tidy.log" 2>"$build/tidy.err" || {
  grep -h -E ' (error|warning): ' "$build/tidy.log" "$build/tidy.err" | sort -u | head -50
  exit 1
}
