# shellcheck shell=bash disable=SC2034  # variables are used by the other files
# Sourced by run_gpt3.sh: which Python runs the benchmark, and whether it can.

choose_python() { # set PYTHON; IN_CONTAINER: options of srun for it
  IN_CONTAINER=()
  if [[ $CONTAINER == none ]]; then
    find_python "$REPOSITORY"
    return
  fi
  PYTHON=python3
  local mounts=$LOG_DIR:$LOG_DIR,$COM_DIR:$COM_DIR
  [[ $CODE == "$LOG_DIR"/* ]] || mounts=$CODE:$CODE,$mounts
  [[ -n ${EXTERNAL_MODEL_CHECKPOINT_DIR:-} ]] && mounts+=,$EXTERNAL_MODEL_CHECKPOINT_DIR:$EXTERNAL_MODEL_CHECKPOINT_DIR
  # Under its name the container stays on the nodes until the job ends: the next attempt does not unpack it again.
  IN_CONTAINER=(--container-image "$CONTAINER" --container-name "gpt3_${SLURM_JOB_ID:-0}")
  IN_CONTAINER+=(--container-mounts "$mounts" --container-workdir "$CODE")
}

one_process() { # one_process COMMAND ...: on this node, in the container where there is one
  if [[ $CONTAINER == none ]]; then
    (cd "$CODE" && "$@") </dev/null
  else
    srun "${ONE_PER_NODE[@]}" --nodes=1 --ntasks=1 --nodelist="$SLURMD_NODENAME" "${GPUS[@]}" "${IN_CONTAINER[@]}" "$@" \
      </dev/null
  fi
}

check_interpreter() { # set SYSTEM_NODES; what would make 512 processes fail the same way is said once, in a line
  local said status=0
  local check=$CODE/benchmark/preflight/interpreter_check.py
  said=$(one_process "$PYTHON" "$check" "${BENCHMARK:-gpt3_175b}" "${SYSTEM:--}") || status=$?
  if ((status)); then
    if [[ ! $said =~ (^|$'\n')error: ]]; then said="error: $PYTHON does not run (status $status)"; fi
    echo "$(grep -m 1 '^error: ' <<<"$said"), in CONTAINER $CONTAINER" >&2
    exit 2
  fi
  SYSTEM_NODES=$(sed -n 's/^nodes //p' <<<"$said" | tail -n 1)
}
