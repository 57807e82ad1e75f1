# shellcheck shell=bash disable=SC2034  # variables are used by the other files
# Sourced by run_gpt3.sh: the options of "python -m benchmark COMMAND", from the variables that run_gpt3.sh documents.

train_options() { # fill OPTIONS for a run on NEEDED nodes of DEVICES processes
  OPTIONS=("${BENCHMARK:-gpt3_175b}" --run-dir "$LOG_DIR")
  [[ -n ${SYSTEM:-} ]] && OPTIONS+=(--system "$SYSTEM")
  OPTIONS+=(--nodes "$NEEDED" --devices-per-node "$DEVICES")
  OPTIONS+=(--train-data-path 0.5 "$COM_DIR/c4_en_6_c4_spm_text_document" 0.5 "$COM_DIR/c4_en_7_c4_spm_text_document")
  OPTIONS+=(--valid-data-path 1.00 "$COM_DIR/c4_en_validation_subset_c4_spm_text_document")
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

read_variables() { # check the variables that every command needs; make paths absolute, for code runs from LOG_DIR
  if [[ -z ${COM_DIR:-} ]]; then
    echo "error: COM_DIR is not set: the folder with the token files" >&2
    exit 2
  fi
  local name
  for name in NODES EXIT_MARGIN_MINUTES MASTER_PORT; do
    if [[ -n ${!name:-} && ! ${!name} =~ ^[0-9]{1,6}$ ]]; then
      echo "error: $name=${!name}: expected a whole number" >&2
      exit 2
    fi
  done
  COM_DIR=$(realpath -m "$COM_DIR")
  [[ -n ${EXTERNAL_MODEL_CHECKPOINT_DIR:-} ]] &&
    EXTERNAL_MODEL_CHECKPOINT_DIR=$(realpath -m "$EXTERNAL_MODEL_CHECKPOINT_DIR")
  DEVICES=${SLURM_NTASKS_PER_NODE:-8}
  warn_of_fp32
}

warn_of_fp32() { # as in the reference, BF16 is asked for; who forgot to should not learn it from the bill
  [[ -n ${USE_BF16:-} || ${BENCHMARK:-gpt3_175b} != gpt3_175b ]] && return
  cat >&2 <<'WARNING'
warning: USE_BF16 is not set, so the run computes in FP32, as the reference does. Published runs use BF16.
warning: FP32 takes 67 instead of 46 GiB on each of 512 H100 and sends twice the bytes; an H100's peak is 989 TFLOP/s in
warning: BF16, 495 in TF32, which NVIDIA's containers use for FP32, 67 in FP32 proper: 2 to 15 times the time.
warning: USE_BF16=true for BF16; USE_BF16=false for FP32 without this warning
WARNING
}
