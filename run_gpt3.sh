#!/usr/bin/env bash
#SBATCH --job-name=gpt3-175b
#SBATCH --nodes=64
#SBATCH --ntasks-per-node=8
#SBATCH --exclusive
#SBATCH --requeue
#
# GPT-3 training benchmark.
#
#   ./run_gpt3.sh                                    the rehearsal: every stage, small, on this machine
#   sbatch run_gpt3.sh LOG_DIR BPE_DIR CONTAINER     the 175B run; options of sbatch (--nodes=32) override the above
#
# Arguments of the 175B run
#   LOG_DIR       logs, checkpoints and result of this run; a run that was interrupted there is continued
#   BPE_DIR       accepted for scripts written for the original reference and not read: the vocabulary size is fixed
#   CONTAINER     image for srun --container-image (pyxis), or "none": the environment's python3 or .venv
#
# Variables of the 175B run (defaults in brackets; "benchmark's" are those in benchmark/config/benchmarks.py)
#   COM_DIR                          folder with c4_en_{6,7,validation_subset}_c4_spm_text_document.{bin,idx} [required]
#   EXTERNAL_MODEL_CHECKPOINT_DIR    converted initial checkpoint; may be left out to continue from LOG_DIR []
#   EXTERNAL_TRAINING_ITERATIONS     steps the initial checkpoint was trained for [benchmark's: 4000]
#   EXTERNAL_GBS                     ... at this global batch size [benchmark's: 1536]
#   USE_BF16                         true: BF16 with FP32 master weights; false: FP32 [false]
#   GBS                              global batch size in samples [benchmark's: 1536]
#   LR, MIN_LR                       peak and final learning rate; set both [benchmark's: 2.0e-5, 2.0e-6]
#   SEED                             seed of the data order [drawn from the system's randomness]
#   BENCHMARK, SYSTEM                names in benchmark/config/benchmarks.py and systems.py [gpt3_175b, the benchmark's]
#   COMMAND                          train; evaluate: log perplexity of the initial checkpoint; preflight: check nodes [train]
#   TRAIN_OPTIONS                    more options for "python -m benchmark COMMAND", separated by spaces []
#   EXIT_MARGIN_MINUTES              stop and save this long before the job's time is up [15]
#   MASTER_ADDR, MASTER_PORT         where the processes meet [this host, 20000 + job id modulo 10000]
#   DRY_RUN                          1: print what would run, and do nothing [0]
#
# Variables of the rehearsal
#   C4_PATH       real text instead of the generated one: C4_PATH/en/c4-train.*.json.gz, C4_PATH/c4-validation*.json []
#   WORK_DIR      where everything is written [runs/rehearsal]
#   SEED, MASTER_PORT, DRY_RUN       as above
set -euo pipefail

# sbatch runs a copy of this script, so the repository is where it was submitted from.
if [[ -n ${SLURM_JOB_ID:-} ]]; then
  REPOSITORY=${SLURM_SUBMIT_DIR:?}
else
  REPOSITORY=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
fi
if [[ ! -f $REPOSITORY/environment.sh ]]; then
  echo "error: $REPOSITORY is not the repository; submit from its folder" >&2
  exit 2
fi
source "$REPOSITORY/environment.sh"

run() { # run COMMAND ...: or only print it
  if [[ ${DRY_RUN:-0} == 1 ]]; then
    printf '%q ' "$@"
    printf '\n'
  else
    "$@"
  fi
}

rehearse() {
  find_python "$REPOSITORY"
  local options=(--work-dir "${WORK_DIR:-$REPOSITORY/runs/rehearsal}")
  [[ -n ${C4_PATH:-} ]] && options+=(--c4-path "$(realpath -m "$C4_PATH")")
  [[ -n ${SEED:-} ]] && options+=(--seed "$SEED")
  [[ -n ${MASTER_PORT:-} ]] && options+=(--master-port "$MASTER_PORT")
  cd "$REPOSITORY"
  if [[ ${DRY_RUN:-0} == 1 ]]; then
    run "$PYTHON" -m benchmark rehearse "${options[@]}"
  else
    exec "$PYTHON" -m benchmark rehearse "${options[@]}"
  fi
}

train_options() { # fill OPTIONS with what "python -m benchmark COMMAND" gets
  local log_dir=$1
  OPTIONS=("${BENCHMARK:-gpt3_175b}" --run-dir "$log_dir")
  [[ -n ${SYSTEM:-} ]] && OPTIONS+=(--system "$SYSTEM")
  OPTIONS+=(--nodes "${SLURM_JOB_NUM_NODES:-64}" --devices-per-node "${SLURM_NTASKS_PER_NODE:-8}")
  local data=${COM_DIR:-}
  if [[ -z $data ]]; then
    echo "error: COM_DIR is not set: the folder with the token files" >&2
    exit 2
  fi
  OPTIONS+=(--train-data-path 0.5 "$data/c4_en_6_c4_spm_text_document" 0.5 "$data/c4_en_7_c4_spm_text_document")
  OPTIONS+=(--valid-data-path 1.00 "$data/c4_en_validation_subset_c4_spm_text_document")
  [[ -n ${EXTERNAL_MODEL_CHECKPOINT_DIR:-} ]] && OPTIONS+=(--checkpoint "$EXTERNAL_MODEL_CHECKPOINT_DIR")
  [[ -n ${EXTERNAL_TRAINING_ITERATIONS:-} ]] && OPTIONS+=(--start-iterations "$EXTERNAL_TRAINING_ITERATIONS")
  [[ -n ${EXTERNAL_GBS:-} ]] && OPTIONS+=(--start-global-batch-size "$EXTERNAL_GBS")
  if [[ ${USE_BF16:-false} == true ]]; then OPTIONS+=(--precision bf16); else OPTIONS+=(--precision fp32); fi
  [[ -n ${GBS:-} ]] && OPTIONS+=(--global-batch-size "$GBS")
  [[ -n ${LR:-} ]] && OPTIONS+=(--lr "$LR")
  [[ -n ${MIN_LR:-} ]] && OPTIONS+=(--min-lr "$MIN_LR")
  [[ -n ${SEED:-} ]] && OPTIONS+=(--seed "$SEED")
  local more
  read -ra more <<<"${TRAIN_OPTIONS:-}"
  OPTIONS+=("${more[@]}")
}

seconds_left() { # seconds until the job's time limit less the margin; nothing where there is no limit
  local end left
  end=$(squeue --noheader --job "$SLURM_JOB_ID" --format=%e)
  [[ $end == N/A || $end == NONE || -z $end ]] && return
  left=$(($(date --date "$end" +%s) - $(date +%s) - 60 * ${EXIT_MARGIN_MINUTES:-15}))
  if ((left <= 0)); then
    echo "error: the job ends at $end, less than EXIT_MARGIN_MINUTES=${EXIT_MARGIN_MINUTES:-15} from now" >&2
    return 2
  fi
  echo "$left"
}

drop_page_caches() { # on every node; true only if it worked everywhere
  run srun --ntasks-per-node=1 sh -c 'sync && (echo 3 >/proc/sys/vm/drop_caches || sudo -n sysctl -q vm.drop_caches=3)' \
    >/dev/null 2>&1
}

train() {
  local log_dir=$1 container=$3 launch status=0
  if [[ -z ${SLURM_JOB_ID:-} && ${DRY_RUN:-0} != 1 ]]; then
    echo "error: the 175B run needs Slurm: sbatch run_gpt3.sh LOG_DIR BPE_DIR CONTAINER (or DRY_RUN=1)" >&2
    exit 2
  fi
  train_options "$log_dir"
  launch=(srun --kill-on-bad-exit=1)
  if [[ $container == none ]]; then
    find_python "$REPOSITORY"
  else
    PYTHON=python3
    local mounts=$REPOSITORY:$REPOSITORY,$log_dir:$log_dir,$COM_DIR:$COM_DIR
    [[ -n ${EXTERNAL_MODEL_CHECKPOINT_DIR:-} ]] && mounts+=,$EXTERNAL_MODEL_CHECKPOINT_DIR:$EXTERNAL_MODEL_CHECKPOINT_DIR
    launch+=(--container-image "$container" --container-mounts "$mounts" --container-workdir "$REPOSITORY")
  fi
  if [[ ${DRY_RUN:-0} != 1 ]]; then
    mkdir -p "$log_dir"
    local limit
    limit=$(seconds_left)
    [[ -n $limit ]] && OPTIONS+=(--time-limit-s "$limit")
    if drop_page_caches; then OPTIONS+=(--cache-cleared); fi
  fi
  export MASTER_ADDR=${MASTER_ADDR:-$(hostname)} MASTER_PORT=${MASTER_PORT:-$((20000 + ${SLURM_JOB_ID:-0} % 10000))}
  cd "$REPOSITORY"
  # shellcheck disable=SC2016  # expanded in each task
  # Slurm starts one process per device; what torchrun would tell it, it gets from Slurm's own variables.
  run "${launch[@]}" bash -c \
    'RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS exec "$@"' - \
    "$PYTHON" -u -m benchmark "${COMMAND:-train}" "${OPTIONS[@]}" || status=$?
  if ((status == 75)); then # interrupted and saved
    echo "The run is saved in $log_dir and goes on when the job is requeued"
    run scontrol requeue "$SLURM_JOB_ID"
  fi
  exit "$status"
}

case $# in
  0) rehearse ;;
  3) train "$(realpath -m "$1")" "$2" "$3" ;;
  *)
    echo "error: expected no arguments (the rehearsal) or LOG_DIR BPE_DIR CONTAINER, got $#" >&2
    exit 2
    ;;
esac
