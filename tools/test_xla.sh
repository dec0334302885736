#!/usr/bin/env bash
# The XLA backend with XLA itself, which ./test without arguments does without:
#   1. every program that its tests run, in jaxlib (tools/run_stablehlo.py)
#   2. the same programs, copies, donation and the cache on a CPU plugin (tools/pjrt_cpu_plugin.sh)
#   3. the golden models on that plugin against ref and cpu, and a second start that compiles nothing
#   4. what adder export writes, in jaxlib again: the same greedy tokens as adder run
# jaxlib is kept in a virtual environment under build/, and so is the plugin.
# Usage: test_xla.sh PATH_TO_TEST_XLA PATH_TO_ADDER
set -euo pipefail
cd "$(dirname "$0")/.."
test_xla=$1 adder=$2
environment=build/xla-venv
source tools/setup.sh
virtual_environment "$environment" tests/xla/requirements.txt
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/programs"
export XDG_CACHE_HOME=$work/cache

programs='Convert*:Dot*:Elementwise*:Loop*:Movement*:Reduce*:Sort*'
ADDER_XLA_DUMP=$work/programs "$test_xla" --gtest_brief=1 --gtest_filter="$programs:RandomProgram*"
"$environment/bin/python" tools/run_stablehlo.py --check "$work/programs"

plugin=$(PATH=$PWD/$environment/bin:$PATH tools/pjrt_cpu_plugin.sh build/pjrt)
export ADDER_PJRT_PLUGIN=$plugin
"$test_xla" --gtest_brief=1 --gtest_filter="$programs:RealPlugin*"

validate() {
  for model in mamba1_hf mamba2_hf mamba2_hf_groups4 falcon_mamba; do
    "$adder" validate "tests/golden/$model" --devices ref,cpu,xla >"$work/table" || {
      cat "$work/table"
      echo "xla: $model: beyond the bounds" >&2
      exit 1
    }
    grep '^xla ' "$work/table" | sed "s/^xla/$model/"
  done
}
validate
# A program that is compiled anew takes the place of its file.
ls -i "$XDG_CACHE_HOME/adder/xla" >"$work/compiled"
validate >/dev/null
ls -i "$XDG_CACHE_HOME/adder/xla" | diff "$work/compiled" - >/dev/null || {
  echo "xla: the second start of a model compiled something" >&2
  exit 1
}
echo "$(wc -l <"$work/compiled") programs, none compiled twice"

for model in mamba1_hf mamba2_hf; do
  "$adder" export "tests/golden/$model" --stablehlo "$work/$model" >/dev/null
  got=$("$environment/bin/python" "$work/$model/run.py" 12,7,19 -n 16)
  want=$("$adder" run "tests/golden/$model" --tokens 12,7,19 -n 16 --temp 0)
  [ "$got" = "$want" ] || {
    echo "xla: $model, exported: expected the tokens $want, got $got" >&2
    exit 1
  }
done
echo "exported programs give the same tokens"
