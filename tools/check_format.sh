#!/usr/bin/env bash
# Every C++ file as .clang-format wants it.
set -euo pipefail
cd "$(dirname "$0")/.."
find src apps python tests fuzz bench \( -name '*.cc' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh' \) -print0 |
  xargs -0 clang-format-14 --dry-run --Werror
