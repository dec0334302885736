#!/usr/bin/env bash
# adder.compat under transformers, and with checkouts of mamba-ssm and causal-conv1d under their own tests.
# Usage: test_python_peers.sh PYTHONPATH [MAMBA_CHECKOUT CAUSAL_CONV1D_CHECKOUT]
# PYTHONPATH is a build's python/ folder. Debian's PyTorch is used, in a virtual environment under build/.
set -euo pipefail
cd "$(dirname "$0")/.."
[ -f "${1:-}/adder/__init__.py" ] || {
  echo "python peers: expected the python/ folder of a build, got '${1:-}'" >&2
  exit 2
}
export PYTHONPATH=$1 PYTHONDONTWRITEBYTECODE=1
environment=build/python-peers-venv
source tools/setup.sh
virtual_environment "$environment" python/tests/requirements.txt --system-site-packages
"$environment/bin/python" -m pytest -q -p no:cacheprovider python/tests/test_compat*.py python/tests/test_transformers.py
"$environment/bin/python" examples/transformers_swap.py
if [ $# -ge 3 ]; then
  "$environment/bin/python" tools/run_peer_tests.py --mamba "$2" --causal-conv1d "$3" --limit 40
fi
