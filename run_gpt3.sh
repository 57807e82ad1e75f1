#!/usr/bin/env bash
#SBATCH --job-name=gpt3-175b
#SBATCH --nodes=64
#SBATCH --ntasks-per-node=8
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
#
# GPT-3 training benchmark, and Llama 3.1 8B by the same harness.
#
#   ./run_gpt3.sh                                           the rehearsal: every stage, small, on this machine
#   BENCHMARK=rehearsal_llama ./run_gpt3.sh                 the rehearsal of Llama 3.1
#   sbatch run_gpt3.sh LOG_DIR BPE_DIR CONTAINER            the 175B run; options of sbatch (--nodes=32) override the above
#   sbatch run_gpt3.sh LOG_DIR BPE_DIR COM_DIR CONTAINER    the same, as newer scripts of the reference are called
#   BENCHMARK=llama31_8b sbatch --nodes=1 run_gpt3.sh LOG_DIR BPE_DIR CONTAINER    Llama 3.1 8B, without a checkpoint
#
# Nodes and time are options of sbatch: NNODES and WALLTIME, which other scripts have, are not read.
#
# The job starts the run again by itself after a failure, without nodes that failed, and requeues itself when it was
# interrupted or too few nodes are left: docs/slurm.md. What it does is in benchmark/launch/, which needs
# Python 3.8 or newer on the job's nodes, and nothing else there where CONTAINER is an image.
#
# Arguments of a job
#   LOG_DIR       logs, checkpoints and result of this run; a run that was interrupted there is continued
#   BPE_DIR       accepted for scripts written for the original reference and not read: the vocabulary size is fixed
#   COM_DIR       the variable, as an argument
#   CONTAINER     image for srun --container-image (pyxis), or "none": the environment's python3 or .venv
#
# Variables of a job are in benchmark/launch/slurm/job_options.py
#
# Variables of the rehearsal
#   C4_PATH       real text instead of the generated one: C4_PATH/en/c4-train.*.json.gz, C4_PATH/c4-validation*.json []
#   BENCHMARK     rehearsal: of GPT-3; rehearsal_llama: of Llama 3.1 [rehearsal]
#   WORK_DIR      where everything is written [runs/BENCHMARK]
#   PRECISION, SEED, MASTER_PORT, DRY_RUN       as those of a job, but BF16 where PRECISION does not say another
set -euo pipefail

# An order to stop that comes before the launcher can take it is handed over.
ASKED_TO_STOP=0 LAUNCHER=
trap 'ASKED_TO_STOP=1' USR2
back_to_queue() { # back_to_queue REASON
  echo "$1: job $SLURM_JOB_ID goes back to the queue" >&2
  local tries
  for ((tries = 360; tries > 0; tries--)); do # half an hour: Slurm's controller may be away
    if scontrol requeue "$SLURM_JOB_ID" || scontrol show job "$SLURM_JOB_ID" >/dev/null 2>&1; then break; fi
    sleep 5
  done
  exit 75
}
refuse() { # refuse [LINE]: end, also a job that comes back
  [[ $# == 0 ]] || echo "error: $1" >&2
  trap - EXIT
  exit 2
}
# sbatch runs a copy of this script, so the repository is where it was submitted from.
if [[ -n ${SLURM_JOB_ID:-} ]]; then
  REPOSITORY=${SLURM_SUBMIT_DIR:-}
  if [[ -z $REPOSITORY ]]; then
    refuse "SLURM_JOB_ID=$SLURM_JOB_ID, but SLURM_SUBMIT_DIR, which Slurm sets too, is not set; submit the script by sbatch"
  fi
else
  REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fi
# Print the first path through which somebody other than this user and root may change the code in folder $1; fail if the
# disk does not say. A folder above it with the sticky bit, such as /tmp, is safe.
writable_by_others() {
  local folder=$1 private=-1 members path
  path=$(realpath "$folder") || return
  if [[ $path != "$folder" ]]; then
    echo "$folder"
    return
  fi
  if [[ $EUID != 0 && $(id -gn) == "$(id -un)" ]]; then # a group of its own, if it has no other member
    members=$(getent group "$(id -g)" | cut -d: -f4) || members=unknown
    [[ -z $members || $members == "$(id -un)" ]] && private=$(id -g)
  fi
  local others=(! -uid "$EUID" ! -uid 0) written=(-perm /002 -o -perm /020 ! -gid "$private")
  find "$folder" \( "${others[@]}" -o "${written[@]}" -o ! -type f ! -type d \) -print -quit || return
  while [[ $folder != / ]]; do
    folder=$(dirname "$folder")
    find "$folder" -maxdepth 0 \( "${others[@]}" -o ! -perm -1000 \( "${written[@]}" \) \) -print || return
  done
}
if [[ ${1:-} == --writable-by-others ]]; then # for benchmark/launch/slurm/snapshot.py
  writable_by_others "$2"
  exit
fi
# In a job that comes back from the queue, or was queued by the one before, the script has worked before: what fails until
# its launcher begins is the node or its disks, as where a file system is not mounted.
GOES_ON=${SLURM_RESTART_COUNT:-0}${CHAINED_JOB:-}
if [[ -n ${SLURM_JOB_ID:-} && $GOES_ON != 0 ]]; then
  trap '[[ $? == 0 ]] || back_to_queue "error: $(hostname): the script failed, which has worked before"' EXIT
fi
# A run goes on with the code it began with, which is in its folder, unless somebody else may have changed that.
CODE=$REPOSITORY
if [[ -n ${SLURM_JOB_ID:-} && $# -ge 3 && -f $1/snapshot/code/environment.sh ]] &&
  [[ ${NEW_SNAPSHOT:-0} != 1 || ${SLURM_RESTART_COUNT:-0} != 0 ]]; then
  CODE=$(realpath "$1")/snapshot/code
  writable=$(writable_by_others "$CODE") || writable=${writable:-$CODE}
  if [[ -n $writable ]]; then
    printf 'warning: others may write %q, so %q does not run; the code of %q does\n' \
      "${writable%%$'\n'*}" "$CODE" "$REPOSITORY" >&2
    CODE=$REPOSITORY
  fi
fi
# The copy has a script of its own, which knows how the copy's launcher is called.
if [[ $CODE != "$REPOSITORY" && ${SCRIPT_OF:-} != "$CODE" ]]; then
  SCRIPT_OF=$CODE exec bash "$CODE/run_gpt3.sh" "$@"
fi
if [[ ! -f $CODE/environment.sh ]]; then
  echo "error: $CODE is not the repository; submit from its folder" >&2
  exit 2
fi
# shellcheck source=environment.sh
source "$CODE/environment.sh"

# Say what is wrong with the variables before anything is installed, wherever there is any Python that can.
check_variables() {
  local status=0
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null || return 0
  (cd "$CODE" && exec python3 -m benchmark.launch check "$@") || status=$?
  if [[ $status == 2 ]]; then refuse; fi
}

# The same for the options that they make, by a Python 3.11 without packages; environment.sh calls it.
before_installing() {
  local status=0
  (cd "$CODE" && exec "$1" -m benchmark.launch check-options "${OPTIONS[@]}") || status=$?
  if [[ $status == 2 ]]; then return 2; fi
}

rehearse() {
  C4_PATH=${C4_PATH:+$(realpath -m "$C4_PATH")} WORK_DIR=${WORK_DIR:+$(realpath -m "$WORK_DIR")}
  export C4_PATH WORK_DIR
  check_variables
  local name=${BENCHMARK:-rehearsal}
  OPTIONS=(rehearse "$name" --work-dir "${WORK_DIR:-$REPOSITORY/runs/$name}")
  [[ -n ${C4_PATH:-} ]] && OPTIONS+=(--c4-path "$C4_PATH")
  [[ -n ${PRECISION:-} ]] && OPTIONS+=(--precision "$PRECISION")
  [[ -n ${SEED:-} ]] && OPTIONS+=(--seed "$SEED")
  [[ -n ${MASTER_PORT:-} ]] && OPTIONS+=(--master-port "$MASTER_PORT")
  find_python "$REPOSITORY"
  local words=("$PYTHON" -m benchmark "${OPTIONS[@]}")
  if [[ ${DRY_RUN:-0} == 1 ]]; then
    [[ -n ${BARE_PYTHON:-} ]] || before_installing "$PYTHON"
    printf '%q ' "${words[@]}"
    printf '\n'
    exit
  fi
  cd "$REPOSITORY"
  exec "${words[@]}"
}

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  cd "$CODE"
  exec python3 -m benchmark.launch variables
fi
case $# in
  0) rehearse ;;
  3 | 4) ;;
  *) refuse "expected no arguments (the rehearsal) or LOG_DIR BPE_DIR [COM_DIR] CONTAINER, got $#" ;;
esac
if [[ -z $1 || -z ${*: -1} ]]; then
  refuse "LOG_DIR '$1', CONTAINER '${*: -1}': expected the run's folder, and an image or none; an argument is empty"
fi

# Before CUDA starts in any process: benchmark/config/runtime_variables.py says why, and why Blackwell needs it not.
if [[ ${SYSTEM:-} != *[bB][23]00* ]]; then
  export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
fi
job=(job --repository "$REPOSITORY" --code "$CODE" --folder "$PWD")
if [[ ${*: -1} == none ]]; then
  OPTIONS=("${job[@]}" --python python3 -- "$@")
  check_variables "${OPTIONS[@]}"
  if ! find_python "$REPOSITORY"; then
    [[ $GOES_ON != 0 ]] || exit 2
    PYTHON=python3 # the launcher needs no packages, says which are gone, and counts how often
  fi
else
  PYTHON=python3
  if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 8))'; then
    echo "error: $(hostname): expected python3 3.8 or newer, which runs the launcher outside of the image" >&2
    exit 2
  fi
fi
# Where the group may not write the run's folder, it may not write what the run makes in it: the code's bytecode, too.
if [[ ! -d $1 || -z $(find "$1/" -maxdepth 0 -perm /020) ]]; then umask g-w,o-w; fi
launch=("${BARE_PYTHON:-$PYTHON}" -m benchmark.launch "${job[@]}" --python "$PYTHON" -- "$@")
LOG=$(realpath -m "$1")/slurm_${SLURM_JOB_ID:-}.out
cd "$CODE"
if [[ ${DRY_RUN:-0} == 1 || -z ${SLURM_JOB_ID:-} ]]; then exec "${launch[@]}"; fi

# The launcher is looked after: killed, it is started again; after that the job goes back to the queue. In this folder it
# says that it has ended by itself, and finds an order that came before it could take orders. Its name tells the lease
# that a launcher follows a dead one (benchmark/launch/slurm/job.py).
end_stopped() { # end_stopped PROCESS: kill it if it is stopped (SIGSTOP) for two minutes
  local looks=0 state
  while sleep 30 && state=$(<"/proc/$1/stat"); do
    if [[ ${state##*)} == " T "* ]]; then looks=$((looks + 1)); else looks=0; fi
    if ((looks >= 4)); then kill -KILL "$1"; fi
  done
}
LAUNCHER_FOLDER=$(mktemp -d || mktemp -d -p /dev/shm) # a node's own disk may be full, or TMPDIR another node's
trap 'rm -rf "$LAUNCHER_FOLDER"' EXIT
if [[ $ASKED_TO_STOP == 1 ]]; then touch "$LAUNCHER_FOLDER/stop"; fi
trap 'touch "$LAUNCHER_FOLDER/stop"; [[ -z $LAUNCHER ]] || kill -USR2 "$LAUNCHER" || true' USR2
trap '[[ -z $LAUNCHER ]] || kill -TERM "$LAUNCHER" || true' TERM
for LAUNCHES in 1 2 3 4; do
  export LAUNCHER_FOLDER LAUNCHES
  (
    trap '' USR2 # until the launcher has its own handler
    exec "${launch[@]}"
  ) &
  LAUNCHER=$!
  end_stopped "$LAUNCHER" </dev/null >/dev/null 2>&1 &
  GUARD=$!
  while true; do
    status=0
    wait "$LAUNCHER" || status=$?
    kill -0 "$LAUNCHER" 2>/dev/null || break # a signal ends the waiting, too
  done
  kill "$GUARD" 2>/dev/null || true
  if [[ -e $LAUNCHER_FOLDER/ended ]]; then exit "$status"; fi
  echo "$(date '+%F %T') the launcher was killed (status $status)" | tee -a "$LOG" 2>/dev/null || true # its folder may not be there yet
done
back_to_queue "the launcher was killed $LAUNCHES times"
