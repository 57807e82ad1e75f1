#!/usr/bin/env bash
#SBATCH --job-name=gpt3-175b
#SBATCH --nodes=64
#SBATCH --ntasks-per-node=8
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
#SBATCH --signal=B:USR2@900
#
# GPT-3 training benchmark, and Llama 3.1 8B by the same harness.
#
#   ./run_gpt3.sh                                           the rehearsal: every stage, small, on this machine
#   BENCHMARK=rehearsal_llama ./run_gpt3.sh                 the rehearsal of Llama 3.1
#   sbatch run_gpt3.sh LOG_DIR BPE_DIR CONTAINER            the 175B run; options of sbatch (--nodes=32) override the above
#   sbatch run_gpt3.sh LOG_DIR BPE_DIR COM_DIR CONTAINER    the same, as newer scripts of the reference are called
#   BENCHMARK=llama31_8b sbatch --nodes=1 run_gpt3.sh LOG_DIR BPE_DIR CONTAINER    Llama 3.1 8B, without a checkpoint
#
# The job starts the run again by itself after a failure, without nodes that failed, and requeues itself when it was
# interrupted or too few nodes are left: docs/slurm.md. What it does is in benchmark/launch/, which needs
# Python 3.8 or newer on the job's nodes, and nothing else there where CONTAINER is an image.
#
# Arguments of a job
#   LOG_DIR       logs, checkpoints and result of this run; a run that was interrupted there is continued
#   BPE_DIR       accepted for scripts written for the original reference and not read: the vocabulary size is fixed
#   COM_DIR       the variable below, as an argument
#   CONTAINER     image for srun --container-image (pyxis), or "none": the environment's python3 or .venv
#
# Variables of a job (defaults in brackets; "benchmark's" are those in benchmark/config/benchmarks.py)
#   COM_DIR                          folder with c4_en_{6,7,validation_subset}_c4_spm_text_document.{bin,idx}; of Llama 3.1
#                                    c4-{train.en_6,validation-91205-samples.en}_text_document.{bin,idx} [required]
#   EXTERNAL_MODEL_CHECKPOINT_DIR    converted initial checkpoint; may be left out to continue from LOG_DIR; Llama 3.1 has
#                                    none, and refuses this variable and the next two []
#   EXTERNAL_TRAINING_ITERATIONS     steps the initial checkpoint was trained for [benchmark's: 4000]
#   EXTERNAL_GBS                     ... at this global batch size [benchmark's: 1536]
#   USE_BF16                         true: BF16 with FP32 master weights; false: FP32 [gpt3_175b: false, with a warning;
#                                    other benchmarks: true]
#   GBS                              global batch size in samples [benchmark's: 1536; Llama 3.1: 16]
#   LR, MIN_LR                       peak and final learning rate; set both [benchmark's: 2.0e-5, 2.0e-6; Llama 3.1: of the
#                                    batch size's reference point, and a tenth of LR]
#   SEED                             seed of the data order [drawn from the system's randomness]
#   BENCHMARK, SYSTEM                names in benchmark/config/benchmarks.py and systems.py [gpt3_175b, the benchmark's]
#   NODES                            nodes the run takes, the job's others are spare [all; up to an eighth more nodes than
#                                    SYSTEM has are spare]
#   COMMAND                          train; evaluate: log perplexity of the initial checkpoint; preflight: check nodes [train]
#   TRAIN_OPTIONS                    more options for "python -m benchmark COMMAND", separated by spaces; paths absolute []
#   EXIT_MARGIN_MINUTES              stop and save this long before the job's time is up [15]
#   CHAIN                            1: while this job runs, the next one waits in the queue [0]
#   CHAIN_OPTIONS                    more options of sbatch for that one, separated by spaces []
#   NEW_SNAPSHOT                     1: run the code as it is now, not as it was when the run began [0]
#   SNAPSHOT_FILES                   files that git does not track and the run needs, relative to the repository,
#                                    separated by spaces []
#   CPU_BIND                         srun --cpu-bind [none: each process keeps to the cores near its GPU]
#   CUDA_DEVICE_MAX_CONNECTIONS      hardware queues of a GPU [1; on Blackwell unset]
#   MASTER_ADDR, MASTER_PORT         where the processes meet [the first node, 20000 + a number by job and attempt]
#   DRY_RUN                          1: print what would run, and do nothing [0]
#
# Variables of the rehearsal
#   C4_PATH       real text instead of the generated one: C4_PATH/en/c4-train.*.json.gz, C4_PATH/c4-validation*.json []
#   BENCHMARK     rehearsal: of GPT-3; rehearsal_llama: of Llama 3.1 [rehearsal]
#   WORK_DIR      where everything is written [runs/BENCHMARK]
#   SEED, MASTER_PORT, DRY_RUN       as above
set -euo pipefail

# sbatch runs a copy of this script, so the repository is where it was submitted from.
if [[ -n ${SLURM_JOB_ID:-} ]]; then
  REPOSITORY=${SLURM_SUBMIT_DIR:?}
else
  REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fi
# Print the first path through which somebody other than this user and root may change the code in folder $1. A folder
# above it with the sticky bit, such as /tmp, is safe. benchmark/launch/slurm/code_trust.py decides in the same way.
writable_by_others() {
  local folder=$1 private=-1 members
  if [[ $(realpath "$folder") != "$folder" ]]; then
    echo "$folder"
    return
  fi
  if [[ $EUID != 0 && $(id -gn) == "$(id -un)" ]]; then # a group of its own, if it has no other member
    members=$(getent group "$(id -g)" | cut -d: -f4) || members=unknown
    [[ -z $members || $members == "$(id -un)" ]] && private=$(id -g)
  fi
  local others=(! -uid "$EUID" ! -uid 0) written=(-perm /002 -o -perm /020 ! -gid "$private")
  find "$folder" \( "${others[@]}" -o "${written[@]}" -o ! -type f ! -type d \) -print -quit 2>/dev/null || echo "$folder"
  while [[ $folder != / ]]; do
    folder=$(dirname "$folder")
    find "$folder" -maxdepth 0 \( "${others[@]}" -o ! -perm -1000 \( "${written[@]}" \) \) -print 2>/dev/null ||
      echo "$folder"
  done
}

# A run goes on with the code it began with, which is in its folder, unless somebody else may have changed that.
CODE=$REPOSITORY
if [[ -n ${SLURM_JOB_ID:-} && $# -ge 3 && -f $1/snapshot/code/environment.sh ]] &&
  [[ ${NEW_SNAPSHOT:-0} != 1 || ${SLURM_RESTART_COUNT:-0} != 0 ]]; then
  CODE=$(realpath "$1")/snapshot/code
  written=$(writable_by_others "$CODE")
  if [[ -n $written ]]; then
    printf 'warning: others may write %q, so %q does not run; the code of %q does\n' \
      "${written%%$'\n'*}" "$CODE" "$REPOSITORY" >&2
    CODE=$REPOSITORY
  fi
fi
if [[ ! -f $CODE/environment.sh ]]; then
  echo "error: $CODE is not the repository; submit from its folder" >&2
  exit 2
fi
# shellcheck source=environment.sh
source "$CODE/environment.sh"

whole_number() { # whole_number NAME: refuse a variable that is none
  if [[ -n ${!1:-} && ! ${!1} =~ ^[0-9]{1,6}$ ]]; then
    echo "error: $1=${!1}: expected a whole number" >&2
    exit 2
  fi
}

rehearse() {
  find_python "$REPOSITORY"
  local name=${BENCHMARK:-rehearsal} words
  words=("$PYTHON" -m benchmark rehearse "$name" --work-dir "${WORK_DIR:-$REPOSITORY/runs/$name}")
  [[ -n ${C4_PATH:-} ]] && words+=(--c4-path "$(realpath -m "$C4_PATH")")
  [[ -n ${SEED:-} ]] && words+=(--seed "$SEED")
  [[ -n ${MASTER_PORT:-} ]] && words+=(--master-port "$MASTER_PORT")
  if [[ ${DRY_RUN:-0} == 1 ]]; then
    printf '%q ' "${words[@]}"
    printf '\n'
    exit
  fi
  cd "$REPOSITORY"
  exec "${words[@]}"
}

if [[ ${1:-} == -h || ${1:-} == --help ]]; then
  sed -n '/^# GPT-3/,/^set/s/^# \{0,1\}//p' "$CODE/run_gpt3.sh"
  exit
fi
case $# in
  0) rehearse ;;
  3) ;;
  4) export COM_DIR=$3 ;;
  *)
    echo "error: expected no arguments (the rehearsal) or LOG_DIR BPE_DIR [COM_DIR] CONTAINER, got $#" >&2
    exit 2
    ;;
esac
if [[ -z ${SLURM_JOB_ID:-} && ${DRY_RUN:-0} != 1 ]]; then
  echo "error: a job needs Slurm: sbatch run_gpt3.sh LOG_DIR BPE_DIR CONTAINER (or DRY_RUN=1)" >&2
  exit 2
fi
if [[ -z ${COM_DIR:-} ]]; then
  echo "error: COM_DIR is not set: the folder with the token files" >&2
  exit 2
fi
for name in NODES EXIT_MARGIN_MINUTES MASTER_PORT; do whole_number "$name"; done
# GPT-3's reference wants BF16 asked for; who forgot to should not learn it from the bill.
if [[ -z ${USE_BF16:-} ]]; then
  USE_BF16=true
  if [[ ${BENCHMARK:-gpt3_175b} == gpt3_175b ]]; then
    USE_BF16=false
    cat >&2 <<'WARNING'
warning: USE_BF16 is not set, so the run computes in FP32, as the reference does. Published runs use BF16.
warning: FP32 takes 67 instead of 46 GiB on each of 512 H100 and sends twice the bytes; an H100's peak is 989 TFLOP/s in
warning: BF16, 495 in TF32, which NVIDIA's containers use for FP32, 67 in FP32 proper: 2 to 15 times the time.
warning: USE_BF16=true for BF16; USE_BF16=false for FP32 without this warning
WARNING
  fi
fi

case $USE_BF16 in
  [Tt]rue | TRUE | [Yy]es | YES | [Oo]n | ON | 1) PRECISION=bf16 ;;
  [Ff]alse | FALSE | [Nn]o | NO | [Oo]ff | OFF | 0) PRECISION=fp32 ;;
  *)
    echo "error: USE_BF16=$USE_BF16: expected true or false" >&2
    exit 2
    ;;
esac

# Before CUDA starts in any process: benchmark/config/runtime_variables.py says why, and why Blackwell needs it not.
if [[ ${SYSTEM:-} != *[bB][23]00* ]]; then
  export CUDA_DEVICE_MAX_CONNECTIONS=${CUDA_DEVICE_MAX_CONNECTIONS:-1}
fi

# Paths are absolute, for code runs from LOG_DIR.
LOG_DIR=$(realpath -m "$1") CONTAINER=${*: -1} COM_DIR=$(realpath -m "$COM_DIR")
if [[ $CONTAINER == none ]]; then find_python "$REPOSITORY"; else PYTHON=python3; fi
launch=(--run-dir "$LOG_DIR" --repository "$REPOSITORY" --code "$CODE" --container "$CONTAINER" --python "$PYTHON")
launch+=(--devices "${SLURM_NTASKS_PER_NODE:-8}" --margin-minutes "${EXIT_MARGIN_MINUTES:-15}" --mount "$COM_DIR")
launch+=(--cpu-bind "${CPU_BIND:-none}")
[[ -n ${NODES:-} ]] && launch+=(--nodes "$NODES")
[[ -n ${MASTER_ADDR:-} ]] && launch+=(--address "$MASTER_ADDR")
[[ -n ${MASTER_PORT:-} ]] && launch+=(--port "$MASTER_PORT")
[[ ${NEW_SNAPSHOT:-0} == 1 ]] && launch+=(--new-snapshot)
[[ ${DRY_RUN:-0} == 1 ]] && launch+=(--dry-run)
[[ ${CHAIN:-0} == 1 ]] && launch+=(--chain "--chain-options=${CHAIN_OPTIONS:-}")
read -ra files <<<"${SNAPSHOT_FILES:-}"
for file in "${files[@]}"; do launch+=("--snapshot-file=$file"); done
for argument in "$LOG_DIR" "${@:2}"; do launch+=("--script=$argument"); done
options=("${BENCHMARK:-gpt3_175b}" --run-dir "$LOG_DIR")
options+=(--data-folder "$COM_DIR")
if [[ -n ${EXTERNAL_MODEL_CHECKPOINT_DIR:-} ]]; then
  EXTERNAL_MODEL_CHECKPOINT_DIR=$(realpath -m "$EXTERNAL_MODEL_CHECKPOINT_DIR")
  options+=(--checkpoint "$EXTERNAL_MODEL_CHECKPOINT_DIR")
  launch+=(--mount "$EXTERNAL_MODEL_CHECKPOINT_DIR")
fi
options+=(--precision "$PRECISION")
while read -r variable option; do
  [[ -n ${!variable:-} ]] && options+=("$option" "${!variable}")
done <<'OPTIONS'
SYSTEM --system
EXTERNAL_TRAINING_ITERATIONS --start-iterations
EXTERNAL_GBS --start-global-batch-size
GBS --global-batch-size
LR --lr
MIN_LR --min-lr
SEED --seed
OPTIONS
read -ra more <<<"${TRAIN_OPTIONS:-}"
# Where the group may not write the run's folder, it may not write what the run makes in it: the code's bytecode, too.
if [[ ! -d $LOG_DIR || -z $(find "$LOG_DIR" -maxdepth 0 -perm /020) ]]; then umask g-w,o-w; fi
cd "$CODE"
exec "$PYTHON" -m benchmark.launch "${launch[@]}" -- "${COMMAND:-train}" "${options[@]}" "${more[@]}"
