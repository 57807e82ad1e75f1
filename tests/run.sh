#!/usr/bin/env bash
# Lint, types and tests. Arguments go to pytest: tests/run.sh tests/model -k gradients
set -euo pipefail
cd "$(dirname "$0")/.."
source environment.sh
find_python "$PWD" dev
echo "=== ruff"
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
echo "=== mypy --strict"
"$PYTHON" -m mypy
echo "=== pytest"
if [[ ! -d ../shared/golden ]]; then
  echo "../shared is not there: comparisons that need the original code's recorded outputs are skipped"
fi
"$PYTHON" -m pytest "$@"
