#!/usr/bin/env bash
# Cross-compiles the backends and their tests for 64-bit Arm and runs them under qemu-user, which
# has NEON: ./test neon. Debian's arm64 packages are unpacked below the build folder; the system's
# own package lists stay as they are. Arguments go to the test program.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build/neon
arm=$build/arm
apt=$build/apt
if [ ! -e "$arm/usr/include/fmt" ]; then
  mkdir -p "$arm" "$apt"/lists/partial "$apt"/cache/archives/partial
  options=(-qq -o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Dir::State::status=/dev/null
           -o Dir::State::lists="$apt/lists" -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=)
  apt-get "${options[@]}" update
  (cd "$apt" && apt-get "${options[@]}" download libhwy1 libhwy-dev libfmt-dev)
  for package in "$apt"/*.deb; do dpkg-deb -x "$package" "$arm"; done
fi
cmake -S "$root/tests/neon" -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
  -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DADDER_ARM="$arm" >/dev/null
ninja -C "$build" --quiet
exec qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$arm/usr/lib/aarch64-linux-gnu" \
  "$build/test_backends" --gtest_brief=1 "$@"
