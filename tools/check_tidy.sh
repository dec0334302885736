#!/usr/bin/env bash
# clang-tidy over the sources of the library, the command line and the Python module, with .clang-tidy's checks. The
# vector kernels are left out: they are compiled once per instruction set by a header that includes
# the file itself, which clang-tidy reads as recursion. So are the emulator, which only tests build, and
# without nvcc what needs CUDA's headers.
set -euo pipefail
cd "$(dirname "$0")/.."
build=build/tidy
mkdir -p "$build"
# clang cannot read g++'s precompiled headers, so this compilation database has none.
cmake -S . -B "$build" -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 -DCMAKE_C_COMPILER=clang-14 \
  -DADDER_BUILD_TESTS=OFF -DADDER_BUILD_PYTHON=ON -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >"$build/configure.log"
left_out=(-path '*/cuda/shim/*')
command -v nvcc >/dev/null || left_out+=(-o -path '*/cuda/runtime/*')
grep -L 'foreach_target.h' $(find src apps python -name '*.cc' -not \( "${left_out[@]}" \)) |
  xargs -P "$(nproc)" -n 4 clang-tidy-14 --quiet -p "$build" >"$build/tidy.log" 2>"$build/tidy.err" || {
  grep -E 'error|warning' "$build/tidy.log" "$build/tidy.err" | sort -u | head -50
  exit 1
}
