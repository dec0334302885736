#!/usr/bin/env bash
# tests/server/clients_test.py with the packages it wants, in a virtual environment under build/.
# Usage: test_clients.sh PATH_TO_ADDER
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=tests/server/requirements.txt
environment=build/clients-venv
if ! cmp -s "$wanted" "$environment/requirements.txt"; then
  rm -rf "$environment"
  /usr/bin/python3 -m venv "$environment"
  "$environment/bin/pip" install --quiet --disable-pip-version-check -r "$wanted" || {
    echo "clients: cannot install what $wanted lists; is Python's package index in reach?" >&2
    exit 1
  }
  cp "$wanted" "$environment/"  # last: it says that the rest is complete
fi
exec "$environment/bin/python" tests/server/clients_test.py "$@"
