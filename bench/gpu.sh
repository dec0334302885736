#!/usr/bin/env bash
# Everything that a GPU can tell about the CUDA backend, in one command and at most 8 minutes:
#   1. correctness: the contract's tests on the GPU, once under compute-sanitizer where it is installed
#   2. the machine's limits, the ladder of scans, single kernels
#   3. prefill and decoding of synthetic mamba-130m, 1.4b, 2.8b and mamba2-2.7b in bf16
#   4. xla:cuda, where its plugin is installed (pip install jax-cuda13-pjrt or jax-cuda12-pjrt): held against cpu and
#      cuda, then prefill and decoding of mamba2-130m and 2.7b beside the CUDA backend
#   5. the same work by mamba-ssm and PyTorch, where they can be imported
# and one table of it, with clocks, temperature, power and throttling during each part (bench/gpu_report.py).
#
#   bench/gpu.sh                 builds with nvcc and this machine's packages, then runs
#   bench/gpu.sh pack DIR        builds, and copies the programs with their libraries to DIR
#   bench/gpu.sh --bundle DIR    runs a packed DIR: needs nothing but a driver
# Results: $OUT, or build/gpu-results.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"

build() {
  source tools/setup.sh
  setup "${build_packages[@]}" libgtest-dev libboost-context-dev python3
  cmake -S . -B build/gpu -G Ninja -DCMAKE_BUILD_TYPE=Release -DADDER_CUDA=ON -DADDER_WERROR=OFF >/dev/null
  cmake --build build/gpu --target adder test_cuda
}

# pack <dir>: the programs, and the shared libraries that are not part of every system.
pack() {
  mkdir -p "$1/lib"
  cp build/gpu/apps/adder build/gpu/tests/test_cuda "$1/"
  ldd "$1/adder" "$1/test_cuda" | awk '$2 == "=>" && $3 ~ /^\// {print $3}' | sort -u |
    grep -vE '/(libc|libm|libdl|libpthread|librt|ld-linux[^/]*|libgcc_s)\.so' |
    xargs -r cp -Lt "$1/lib"
  strip "$1/adder" "$1/test_cuda"
  du -sh "$1"
}

bundle=""
case "${1:-}" in
  pack)
    [ -n "${2:-}" ] || { echo "bench/gpu.sh pack: expected a folder" >&2; exit 2; }
    build
    pack "$2"
    exit 0
    ;;
  --bundle)
    bundle=${2:?bench/gpu.sh --bundle: expected a folder}
    ;;
  "") ;;
  *)
    sed -n '2,16s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac

command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 || {
  echo "bench/gpu.sh: no NVIDIA GPU or driver on this machine" >&2
  exit 1
}
if [ -n "$bundle" ]; then
  adder=$bundle/adder tests=$bundle/test_cuda
  export LD_LIBRARY_PATH=$bundle/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
else
  build
  adder=build/gpu/apps/adder tests=build/gpu/tests/test_cuda
fi
out=${OUT:-build/gpu-results}
mkdir -p "$out"
: >"$out/parts.tsv"

# part <name> <seconds at most> <command>...: runs it while the GPU's state is written down five times a second. What
# would begin after 8 minutes is left out, and nothing runs beyond them.
end=$((SECONDS + 480))
part() {
  local name=$1 limit=$2 begin status=0 left=$((end - SECONDS))
  shift 2
  [ "$left" -ge 5 ] || { echo "$name: left out, the 8 minutes are over"; return; }
  [ "$limit" -le "$left" ] || limit=$left
  begin=$(date +%s.%N)
  nvidia-smi --query-gpu=clocks.sm,clocks.mem,temperature.gpu,power.draw,clocks_throttle_reasons.active \
    --format=csv,noheader,nounits -lms 200 >"$out/$name.smi" 2>/dev/null &
  local watcher=$!
  timeout "$limit" "$@" >"$out/$name.out" 2>"$out/$name.err" || status=$?
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
  printf '%s\t%s\t%s\t%s\n' "$name" "$status" "$begin" "$(date +%s.%N)" >>"$out/parts.tsv"
  echo "$name: $([ "$status" = 0 ] && echo done || echo "failed with status $status, see $out/$name.err")"
}

nvidia-smi --query-gpu=name,driver_version,memory.total,power.limit --format=csv,noheader >"$out/gpu.txt"
part tests 90 "$tests" '--gtest_filter=*/cuda' --gtest_brief=1
if command -v compute-sanitizer >/dev/null; then
  part sanitizer 60 compute-sanitizer --error-exitcode 9 "$tests" \
    '--gtest_filter=*RealSizes/cuda:*PackedSequences*/cuda' --gtest_brief=1
fi
part roofline 30 "$adder" roofline --device cuda --limits-only --json
for shape in "mamba-130m 1 4096" "mamba-2.8b 1 128" "mamba-2.8b 1 4096" "mamba-2.8b 8 4096" "mamba-2.8b 1 32768"; do
  read -r model batch length <<<"$shape"
  part "scan-$model-$batch-$length" 40 "$adder" bench scan --device cuda --synthetic "$model" --batch "$batch" \
    --tokens "$length" --repeat 5 --seconds 0.01 --json
done
part kernels 40 "$adder" bench kernels --device cuda --synthetic mamba2-2.7b --type bf16 --json
for model in mamba-130m mamba-1.4b mamba-2.8b mamba2-2.7b; do
  part "model-$model" 60 "$adder" bench --device cuda --synthetic "$model" --type bf16 --prompt 4096 --block 4096 \
    --gen 64 --repeat 3 --json
done
# Without a device of the plugin's, adder says so at once; the demo model is compiled in.
if "$adder" run --device xla:cuda --tokens 1 -n 1 >/dev/null 2>"$out/xla.err"; then
  part xla-validate 60 "$adder" validate --devices cpu,cuda,xla:cuda
  if [ -d tests/golden/mamba2_hf ]; then
    part xla-validate-mamba2 60 "$adder" validate tests/golden/mamba2_hf --devices cpu,cuda,xla:cuda
  fi
  for model in mamba2-130m mamba2-2.7b; do
    for device in cuda xla:cuda; do
      part "model-$model-${device%:*}" 60 "$adder" bench --device "$device" --synthetic "$model" --type bf16 --prompt 2048 \
        --block 2048 --gen 64 --temp 0 --repeat 3 --json
    done
  done
else
  echo "xla:cuda: skipped: $(head -n 1 "$out/xla.err")" | tee "$out/xla-skipped.txt"
fi
part peers 120 python3 bench/gpu_peers.py
python3 bench/gpu_report.py "$out" | tee "$out/report.txt"
