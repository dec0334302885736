#!/usr/bin/env bash
# Gives every program that the tests of the XLA backend run to XLA too (tools/run_stablehlo.py), with
# jaxlib in a virtual environment under build/.
# Usage: test_stablehlo.sh PATH_TO_TEST_XLA
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=tests/xla/requirements.txt
environment=build/stablehlo-venv
if ! cmp -s "$wanted" "$environment/requirements.txt"; then
  rm -rf "$environment"
  /usr/bin/python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" || {
    echo "stablehlo: cannot install what $wanted lists; is Python's package index in reach?" >&2
    exit 1
  }
  cp "$wanted" "$environment/"  # last: it says that the rest is complete
fi
programs=$(mktemp -d)
trap 'rm -rf "$programs"' EXIT
ADDER_XLA_DUMP=$programs "$1" --gtest_brief=1
"$environment/bin/python" tools/run_stablehlo.py --check "$programs"
