#!/usr/bin/env bash
# Fetches the XLA CPU plugin that the tests of the XLA backend run on, and prints its path:
#   ADDER_PJRT_PLUGIN=$(tools/pjrt_cpu_plugin.sh build/pjrt) ctest -L xla
# 63 MB, once; with --older another build of XLA (API 0.81 of 2025), to see that both are served.
# The packages have a maintainer each: only the bytes of these hashes are taken.
set -euo pipefail
if [ "${1:-}" = --older ]; then
  shift
  requirement="xla-cpu-pjrt==0.0.1"
  hash=55837b6b7b47daa717f2d9a5a03563ea0ceaa338d06a81a1e2d3f060d960decc
  file=xla_plugins/xla_cpu_pjrt/xla_cpu_pjrt.so
else
  requirement="lammps-jax-pjrt-cpu==0.11.2"
  hash=1319390d948b39f69f7dade496b7c385149d9ca6097a6b62114da113216d9ad1
  file=lammps_jax_pjrt_cpu/pjrt_c_api_cpu_plugin.so
fi
[ $# -eq 1 ] || { echo "usage: $0 [--older] FOLDER" >&2; exit 2; }
mkdir -p "$1"
folder=$(cd "$1" && pwd)
if [ ! -f "$folder/$file" ]; then
  work=$(mktemp -d "$folder/fetch.XXXXXX")
  trap 'rm -rf "$work"' EXIT
  echo "$requirement --hash=sha256:$hash" >"$work/requirements.txt"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --require-hashes \
    --only-binary :all: --platform manylinux_2_27_x86_64 --dest "$work" \
    --requirement "$work/requirements.txt" >&2
  python3 -m zipfile --extract "$work"/*.whl "$work/unpacked"
  # The library last and at once: a folder that has it is complete.
  mkdir -p "$folder/$(dirname "$file")"
  mv "$work/unpacked/$file" "$folder/$file"
fi
echo "$folder/$file"
