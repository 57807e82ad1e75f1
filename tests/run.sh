#!/usr/bin/env bash
# Lint, types, import table, tests.
#
#   tests/run.sh                                all of it
#   tests/run.sh --fast                         without the tests marked slow: about a minute
#   tests/run.sh tests/model -k gradients       other arguments go to pytest
set -euo pipefail
cd "$(dirname "$0")/.."
source environment.sh
find_python "$PWD" dev
unset PYTHONDONTWRITEBYTECODE        # compiled once, not in every process
marks=()
if [[ ${1:-} == --fast ]]; then
  marks=(-m "not slow")
  shift
fi
scripts=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')
echo "=== ruff"
"$PYTHON" -m ruff check .
"$PYTHON" -m ruff format --check .
echo "=== shellcheck"
"$scripts/shellcheck" run_gpt3.sh environment.sh tests/run.sh tests/benchmark/launch/slurm/stand_in.sh .ci/run
echo "=== import-linter"
"$scripts/lint-imports" --no-logo --no-cache
types=$(mktemp)
"$PYTHON" -m mypy >"$types" 2>&1 & # takes one core for most of a minute, and tests leave some of theirs idle
checking=$!
trap 'kill "$checking" 2>/dev/null || true; rm -f "$types"' EXIT
echo "=== pytest, and mypy --strict beside it"
if [[ ! -d ../shared/golden ]]; then
  echo "../shared is not there: comparisons that need the original code's recorded outputs are skipped"
fi
# A file's tests stay in one process, for they share what they compare with; in the order of tests/conftest.py, the slow
# ones first. A process takes up to 1 GB, with those it forks, and the longest file bounds the time: more than eight gain
# nothing on a machine of many cores. Two more than there are cores, for many tests wait for other processes half of
# their time.
processes=$(($(nproc) < 6 ? $(nproc) + 2 : 8))
status=0
"$PYTHON" -m pytest --numprocesses "$processes" --dist loadfile --no-loadscope-reorder --durations 10 "${marks[@]}" "$@" || status=$?
echo "=== mypy --strict"
wait "$checking" || status=$?
cat "$types"
exit "$status"
