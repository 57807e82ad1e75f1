# shellcheck shell=bash disable=SC2086  # $extra is empty or one word
# Sourced by run_gpt3.sh and tests/run.sh: set PYTHON to an interpreter that has the dependencies.
#
#   find_python REPOSITORY [dev]
#
# The environment's own python3 is used if it has them all, as in a container or an active virtual environment; else
# REPOSITORY/.venv, which is made from the lock file where it is missing or incomplete.

find_python() {
  local repository=$1 extra=${2:-} lock=requirements${2:+-$2}.lock candidate
  local code=${CODE:-$repository} # a run's own copy of the code knows what it needs
  for candidate in python3 "$repository/.venv/bin/python"; do
    if command -v "$candidate" >/dev/null && "$candidate" "$code/foundation/dependencies.py" $extra >/dev/null 2>&1; then
      PYTHON=$(command -v "$candidate")
      return
    fi
  done
  for candidate in python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "Installing $lock into .venv (once)"
      "$candidate" -m venv "$repository/.venv"
      PYTHON=$repository/.venv/bin/python
      "$PYTHON" -m pip install --quiet --disable-pip-version-check --requirement "$code/$lock"
      "$PYTHON" "$code/foundation/dependencies.py" $extra
      return
    fi
  done
  echo "error: Python 3.11 or newer is needed; none was found" >&2
  return 2
}
