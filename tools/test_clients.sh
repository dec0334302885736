#!/usr/bin/env bash
# tests/server/clients_test.py with the packages it wants, in a virtual environment under build/.
# Usage: test_clients.sh PATH_TO_ADDER
set -euo pipefail
cd "$(dirname "$0")/.."
environment=build/clients-venv
source tools/setup.sh
virtual_environment "$environment" tests/server/requirements.txt
exec "$environment/bin/python" tests/server/clients_test.py "$@"
