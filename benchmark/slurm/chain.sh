# shellcheck shell=bash
# Sourced by run_gpt3.sh: the job after this one. It is this one again, requeued; or, with CHAIN=1, one that waits in
# the queue from the beginning, so that its waiting counts.

chain_name() { # a name by which the jobs of this run, and no others, wait for each other
  echo "gpt3-$(basename "$LOG_DIR" | tr -c '[:alnum:]\n' -)-$(cksum <<<"$LOG_DIR" | cut -d ' ' -f 1)"
}

queue_next_job() { # with CHAIN=1, unless one waits already; set NEXT_JOB
  NEXT_JOB=
  [[ ${CHAIN:-0} == 1 ]] || return 0
  local name said
  name=$(chain_name)
  if ! scontrol update JobId="$SLURM_JOB_ID" JobName="$name" >/dev/null 2>&1; then
    echo "warning: the job cannot be renamed to $name: no job is queued behind it" >&2
    return 0
  fi
  NEXT_JOB=$(waiting_job "$name")
  if [[ -z $NEXT_JOB ]]; then
    sbatch_options "$name"
    if said=$(without_slurm_variables sbatch "${NEXT_OPTIONS[@]}" "$CODE/run_gpt3.sh" "${ARGUMENTS[@]}" 2>&1); then
      NEXT_JOB=${said##*$'\n'} NEXT_JOB=${NEXT_JOB%%;*}
    else
      echo "warning: no job is queued behind this one: ${said//$'\n'/ }" >&2
      return 0
    fi
  fi
  echo "job $NEXT_JOB waits in the queue to go on after this one; touch $LOG_DIR/exit ends both"
}

waiting_job() { # waiting_job NAME
  squeue --noheader --user="$(id -un)" --name="$1" --states=PENDING --format=%A 2>/dev/null |
    grep -vx "$SLURM_JOB_ID" | head -n 1 || true
}

sbatch_options() { # sbatch_options NAME: fill NEXT_OPTIONS with what this job was submitted with
  local field option value more
  NEXT_OPTIONS=(--parsable --dependency=singleton --job-name="$1" --chdir="$REPOSITORY")
  NEXT_OPTIONS+=(--ntasks-per-node="$DEVICES" --nodes="${#JOB_NODES[@]}")
  while read -r field option; do
    value=$(job_field "$field")
    [[ -n $value ]] && NEXT_OPTIONS+=("--$option=$value")
  done <<'FIELDS'
Partition partition
Account account
QOS qos
TimeLimit time
Reservation reservation
Features constraint
ExcNodeList exclude
FIELDS
  for field in StdOut:output StdErr:error; do
    value=$(job_field "${field%:*}")
    # In the file's name the job's number, where there is one, was %j.
    [[ -n $value ]] && NEXT_OPTIONS+=("--${field#*:}=$(dirname "$value")/$(basename "${value//"$SLURM_JOB_ID"/%j}")")
  done
  value=$(job_field TresPerNode) # such as gres:gpu:8 or gres/gpu:8
  [[ -n $value ]] && NEXT_OPTIONS+=(--gres="${value//gres[:\/]/}")
  [[ -n ${SLURM_GPUS_PER_TASK:-} ]] && NEXT_OPTIONS+=(--gpus-per-task="$SLURM_GPUS_PER_TASK")
  [[ -n ${SLURM_CPUS_PER_TASK:-} ]] && NEXT_OPTIONS+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
  read -ra more <<<"${CHAIN_OPTIONS:-}"
  NEXT_OPTIONS+=("${more[@]}")
}

without_slurm_variables() { # without_slurm_variables COMMAND ...: this job's own would be taken for the next one's
  local name words=(--unset=NEW_SNAPSHOT)
  while read -r name; do
    words+=(--unset="$name")
  done < <(compgen -e | grep -E '^(SLURM_|SLURMD_|PMI|SBATCH_)' | grep -vx SLURM_CONF)
  env "${words[@]}" "$@"
}

cancel_next_job() { # the run has ended, or a person has to look
  [[ ${CHAIN:-0} == 1 ]] || return 0
  local job=${NEXT_JOB:-}
  [[ -n $job ]] || job=$(waiting_job "$(chain_name)")
  if [[ -n $job ]] && scancel --state=PENDING "$job" 2>/dev/null; then
    echo "job $job, which waited in the queue, is cancelled"
  fi
  NEXT_JOB=
}

go_on_later() { # go_on_later: by the job that waits, or by this one in the queue again; does not return
  if [[ -n ${NEXT_JOB:-} ]]; then
    if ((${#EXCLUDED[@]})); then
      scontrol update JobId="$NEXT_JOB" ExcNodeList="$(joined "${EXCLUDED[@]}")" >/dev/null 2>&1 || true
    fi
    echo "the run goes on in job $NEXT_JOB"
    leave 75
  fi
  echo "the run goes on when job $SLURM_JOB_ID has come through the queue again"
  if ! scontrol requeue "$SLURM_JOB_ID"; then
    echo "error: it cannot be requeued here; submit the same command again to go on" >&2
    leave 75
  fi
  local seconds
  for ((seconds = 0; seconds < 300 && !ENDED_BY_SLURM; seconds++)); do # Slurm ends this script
    pause 1
  done
  leave 75
}
