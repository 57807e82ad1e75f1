#!/usr/bin/env bash
# Lint, types, import table, tests.
#
#   tests/run.sh                                all of it
#   tests/run.sh --fast                         without the tests marked slow: about a minute
#   tests/run.sh --torch 2.15.0                 the tests alone, with that PyTorch, which goes into .venv-torch-2.15.0
#   tests/run.sh tests/model -k gradients       other arguments go to pytest
set -euo pipefail
cd "$(dirname "$0")/.."
source environment.sh
version=
if [[ ${1:-} == --torch ]]; then
  version=${2:?--torch: which version? Such as 2.15.0}
  shift 2
fi
find_python "$PWD" dev "$version"
unset PYTHONDONTWRITEBYTECODE        # compiled once, not in every process
marks=()
if [[ ${1:-} == --fast ]]; then
  marks=(-m "not slow")
  shift
fi
checking=
if [[ $version ]]; then
  PATH=$(dirname "$PYTHON"):$PATH # for the programs that tests start
  echo "=== pytest, with PyTorch $version"
else
  types=$(mktemp)
  "$PYTHON" -m mypy >"$types" 2>&1 & # takes one core for 15 s, and tests leave some of theirs idle
  checking=$!
  trap 'kill "$checking" 2>/dev/null || true; rm -f "$types"' EXIT
  scripts=$("$PYTHON" -c 'import sysconfig; print(sysconfig.get_path("scripts"))')
  echo "=== ruff"
  "$PYTHON" -m ruff check .
  "$PYTHON" -m ruff format --check .
  echo "=== shellcheck"
  "$scripts/shellcheck" run_gpt3.sh environment.sh tests/run.sh tests/benchmark/launch/slurm/stand_in.sh .ci/run
  echo "=== import-linter"
  "$scripts/lint-imports" --no-logo --no-cache
  echo "=== pytest, and mypy --strict beside it"
fi
if [[ ! -d ../shared/golden ]]; then
  echo "../shared is not there: comparisons that need the original code's recorded outputs are skipped"
fi
# A file's tests stay in one process, for they share what they compare with; in the order of tests/conftest.py, the slow
# ones first. A process takes up to 1 GB, with those it forks, and the longest file bounds the time: more than eight gain
# nothing on a machine of many cores. One more than there are cores, for tests wait for other processes now and then; each
# begins with four seconds of imports, which plugins of packages that happen to be installed would make longer.
processes=$(($(nproc) < 7 ? $(nproc) + 1 : 8))
status=0
export PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
plugins=(-p xdist -p pytest_timeout -p _hypothesis_pytestplugin)
"$PYTHON" -m pytest "${plugins[@]}" --numprocesses "$processes" --dist loadfile --no-loadscope-reorder --durations 10 "${marks[@]}" "$@" || status=$?
if [[ $checking ]]; then
  echo "=== mypy --strict"
  wait "$checking" || status=$?
  cat "$types"
fi
exit "$status"
