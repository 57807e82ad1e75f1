# shellcheck shell=bash disable=SC2086  # $extra is empty or one word
# Sourced by run_gpt3.sh and tests/run.sh: set PYTHON to an interpreter that has the dependencies.
#
#   find_python REPOSITORY [dev [VERSION]]
#
# The environment's own python3 is used if it has them all, as in a container or an active virtual environment; else
# REPOSITORY/.venv, which is made from the lock file where it is missing or incomplete. A PyTorch at hand that is new
# enough is used; otherwise the build is chosen by whether there is a GPU, or by TORCH_BUILD=cpu or cuda. With DRY_RUN=1
# nothing is installed, and BARE_PYTHON is an interpreter that lacks packages. The function before_installing, if there is
# one, is called with that interpreter first. With VERSION it is that PyTorch instead, in REPOSITORY/.venv-torch-VERSION.

find_python() {
  local repository=$1 extra=${2:-} lock=requirements${2:+-$2}.lock version=${3:-} candidate
  local code=${CODE:-$repository} # a run's own copy of the code knows what it needs
  local environment=$repository/.venv${version:+-torch-$version}
  local candidates=("$environment/bin/python")
  [[ $version ]] || candidates=(python3 "${candidates[@]}")
  if [[ ${TORCH_BUILD:-cpu} != cpu && $TORCH_BUILD != cuda ]]; then
    echo "error: TORCH_BUILD=$TORCH_BUILD: expected cpu or cuda; without it, cuda where there is a GPU" >&2
    return 2
  fi
  for candidate in "${candidates[@]}"; do
    if command -v "$candidate" >/dev/null && "$candidate" "$code/foundation/dependencies.py" $extra >/dev/null 2>&1; then
      PYTHON=$(command -v "$candidate")
      return
    fi
  done
  for candidate in python3 python3.13 python3.12 python3.11; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      if [[ $(type -t before_installing) == function ]]; then before_installing "$candidate" || return; fi
      if [[ ${DRY_RUN:-0} == 1 ]]; then
        echo "DRY_RUN=1 installs nothing; without it, $lock goes into ${environment##*/} first"
        PYTHON=$environment/bin/python
        # shellcheck disable=SC2034  # read by the script that sources this file
        BARE_PYTHON=$candidate
        return
      fi
      install_lock "$candidate" "$environment" "$code/$lock" "$version" || return
      PYTHON=$environment/bin/python
      "$PYTHON" "$code/foundation/dependencies.py" $extra
      return
    fi
  done
  echo "error: Python 3.11 or newer is needed; none was found" >&2
  return 2
}

# install_lock PYTHON ENVIRONMENT LOCK VERSION: make the environment, and show the names and sizes of what is downloaded;
# an empty VERSION is that of the lock, or PyTorch at hand
install_lock() {
  local interpreter=$1 environment=$2 lock=$3 version=$4 torch at_hand build packages installer folder
  local locks=("${lock%/*}/requirements.lock") # the developers' lock adds to it
  [[ $lock == "${locks[0]}" ]] || locks+=("$lock")
  torch=${version:+torch==$version}
  torch=${torch:-$(grep -h '^torch==' "${locks[@]}")}
  packages=$(mktemp)
  grep -hvE '^(torch==|-r|--requirement)' "${locks[@]}" >"$packages"
  echo "Installing ${lock##*/} into ${environment##*/} (once)"
  [[ $version ]] || at_hand=$("$interpreter" -c "$TORCH_AT_HAND" 2>/dev/null || true)
  build=${TORCH_BUILD:-$(nvidia-smi -L >/dev/null 2>&1 && echo cuda || echo cpu)}
  if ! "$interpreter" -m venv "$environment"; then
    rm -f "$packages"
    echo "error: $environment cannot be made; use a copy of this folder that you can write, or activate an environment of your own that has ${lock##*/}" >&2
    return 2
  fi
  folder=$("$environment/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))') || return
  if [[ ${at_hand:-} ]]; then
    echo "  PyTorch: the one in $at_hand"
    echo "$at_hand" >"$folder/torch_at_hand.pth"
    torch=
  fi
  installer=("$environment/bin/python" -m pip --disable-pip-version-check install --no-compile)
  command -v uv >/dev/null && installer=(uv pip install --python "$environment/bin/python")
  if [[ $torch && $build == cpu ]]; then
    echo "  $torch for the CPU, some 200 MB; TORCH_BUILD=cuda takes the build for GPUs, some 3 GB"
    # by itself: the packages that it needs are in the lock, and an index of PyTorch alone may lack them
    if ! PIP_RETRIES=0 PIP_TIMEOUT=15 UV_HTTP_TIMEOUT=15 shown "${installer[@]}" --no-deps "$torch" --index-url "$PYTORCH_CPU_INDEX"; then
      echo "  $PYTORCH_CPU_INDEX does not give it: $torch comes from the default index, with CUDA if that is its build"
    fi
  elif [[ $torch ]]; then
    echo "  $torch for GPUs, some 3 GB; TORCH_BUILD=cpu takes the build without CUDA, some 200 MB"
  fi
  if ! shown "${installer[@]}" --requirement "$packages" $torch; then
    rm -f "$packages"
    cat >&2 <<MESSAGE
error: the packages could not be installed; the lines above say why. Without a network, fetch them elsewhere by the
first of these commands, with the same version of Python, bring the folder wheels along, and install them by the second:
  python3 -m pip download --requirement ${lock##*/} --dest wheels
  $environment/bin/python -m pip install --no-index --find-links wheels --requirement ${lock##*/}
MESSAGE
    return 2
  fi
  rm -f "$packages"
  # bytecode on all cores: pip takes one core, uv leaves it to the first import. Tests of packages and the models of
  # transformers, 40 % of all files of Python, are hardly imported; a package may hold a file that is no Python
  local unused='site-packages/(.*/)?(tests?|transformers/models)/'
  "$environment/bin/python" -m compileall -qq -j 0 -x "$unused" "$folder" >/dev/null 2>&1 || true
}

# prints the folder of the packages in which this Python has PyTorch 2.11 or newer
TORCH_AT_HAND='
import pathlib, torch
if [*map(int, torch.__version__.split(".")[:2])] >= [2, 11]:
    print(pathlib.Path(torch.__file__).parents[1])
'
PYTORCH_CPU_INDEX=https://download.pytorch.org/whl/cpu

# shown COMMAND...: run an installer; show what it downloads, with sizes, and its errors, each once
shown() {
  PIP_RETRIES=${PIP_RETRIES:-2} PIP_PROGRESS_BAR=off "$@" 2>&1 | grep --line-buffered -v 'dependency resolver' |
    sed -uE "s/^WARNING: Retrying .* broken by .*(\[Errno [^]]*\] |OSError\(')([^')]*).*/  no connection: \\2/" |
    { grep --line-buffered -E '^ *(Downloading|Installed|Successfully installed|no connection|Caused by|ERROR|error)' || true; } |
    awk '!shown[$0]++ { print; fflush() }'
  return "${PIPESTATUS[0]}"
}
