# shellcheck shell=bash disable=SC2034  # variables are used by the other files
# Sourced by run_gpt3.sh: one start of all processes of the run, and waiting for their end.

LOOK_S=10       # between looks at the attempt's alarm
ASK_S=60        # between questions about the job's time
ALARM_S=240     # after an alarm srun ends, by itself or not; it waits 60 s for its processes

launch_line() { # fill LAUNCH for the nodes USED
  LAUNCH=(srun --kill-on-bad-exit=1 --wait=60 --overlap --no-kill=off)
  LAUNCH+=(--nodes="$NEEDED" --ntasks=$((NEEDED * DEVICES)) --ntasks-per-node="$DEVICES" --distribution=block)
  ((${#USED[@]})) && LAUNCH+=(--nodelist="$(joined "${USED[@]}")")
  [[ ${BINDS:-1} == 1 ]] && LAUNCH+=(--cpu-bind="${CPU_BIND:-none}")
  [[ -n ${SLURM_CPUS_PER_TASK:-} ]] && LAUNCH+=(--cpus-per-task="$SLURM_CPUS_PER_TASK")
  LAUNCH+=("${GPUS[@]}" "${IN_CONTAINER[@]}")
  # Slurm starts one process per device; what torchrun would tell it, it gets from Slurm's own variables. Signals that
  # ask for saving end no process that cannot listen yet.
  # shellcheck disable=SC2016  # expanded in each task
  local task='trap "" USR1 USR2; export RANK=$SLURM_PROCID LOCAL_RANK=$SLURM_LOCALID WORLD_SIZE=$SLURM_NTASKS'
  # shellcheck disable=SC2016
  task+='; export NODE_NAME=$SLURMD_NODENAME; exec "$@"'
  LAUNCH+=(bash -c "$task" -)
  LAUNCH+=("$PYTHON" -u -m benchmark "${COMMAND:-train}" "${OPTIONS[@]}")
}

gpu_options() { # fill GPUS with what a step needs to get the job's GPUs. Without it a step of a job that has a node to
  # itself sees none, though the job has them all; where Slurm knows of no GPUs it is refused
  GPUS=()
  if [[ -n ${SLURM_GPUS_ON_NODE:-}${SLURM_JOB_GPUS:-} ]]; then
    [[ -n ${SLURM_GPUS_PER_TASK:-} ]] || GPUS=(--gpus-per-node="$DEVICES") # steps inherit it where each task has its own
  elif [[ ${NODE_SAID:-} =~ [[:space:]]Gres=[^[:space:]]*gpu ]]; then
    echo "warning: the nodes have GPUs that the job did not get: sbatch --gpus-per-node=$DEVICES" >&2
  fi
}

print_attempt() { # DRY_RUN: the first attempt's srun, without asking Slurm
  read_variables
  choose_python
  gpu_options
  NEEDED=${NODES:-${SLURM_JOB_NUM_NODES:-64}} USED=()
  train_options
  launch_line
  run "${LAUNCH[@]}"
}

new_attempt() { # set ATTEMPT to the next number of the run, and make its folder
  local folder last=0
  for folder in "$LOG_DIR"/attempts/[0-9]*; do
    [[ ${folder##*/} =~ ^[0-9]+$ ]] && ((10#${folder##*/} > last)) && last=$((10#${folder##*/}))
  done
  printf -v ATTEMPT %04d $((last + 1))
  mkdir -p "$LOG_DIR/attempts/$ATTEMPT"
}

meeting_place() { # set ADDRESS and PORT: on the node of rank 0, and at another port than the attempt before
  local first=${USED[0]}
  ADDRESS=${MASTER_ADDR:-}
  if [[ -z $ADDRESS ]] || { one_of "$ADDRESS" "${JOB_NODES[@]}" && [[ $ADDRESS != "$first" ]]; }; then
    ADDRESS=$(node_address "$first")
  fi
  # An earlier attempt's port may be held for a while, by the system or by a process that is dying.
  if [[ -n ${MASTER_PORT:-} ]]; then
    PORT=$((MASTER_PORT + STARTED % 100))
  else
    PORT=$((20000 + (SLURM_JOB_ID + 1009 * STARTED) % 10000))
  fi
}

drop_page_caches() { # on every node that is used; true only if it worked everywhere
  srun "${ONE_PER_NODE[@]}" --nodes="$NEEDED" --ntasks="$NEEDED" --nodelist="$(joined "${USED[@]}")" \
    sh -c 'sync && (echo 3 >/proc/sys/vm/drop_caches || sudo -n sysctl -q vm.drop_caches=3)' >/dev/null 2>&1 </dev/null
}

run_attempt() { # run_attempt ERRORS: start the processes on USED, wait for their end; set STATUS to srun's exit status
  ERRORS=$1
  local watcher
  meeting_place
  launch_line
  (
    cd "$CODE" || exit
    export ATTEMPT MASTER_ADDR=$ADDRESS MASTER_PORT=$PORT LAUNCH_ID=$SLURM_JOB_ID
    LAUNCHED_S=$(date +%s.%3N) SUBMITTED_S=$(submitted_s)
    export LAUNCHED_S
    [[ -n $SUBMITTED_S ]] && export SUBMITTED_S
    exec "${LAUNCH[@]}" </dev/null 2>>"$ERRORS" 3>&- 4>&-
  ) &
  SRUN=$!
  STARTED=$((STARTED + 1))
  watch_attempt "$SRUN" "$LOG_DIR/attempts/$ATTEMPT/alarm" &
  watcher=$!
  wait_for "$SRUN"
  SRUN=
  kill "$watcher" 2>/dev/null || true
  wait "$watcher" 2>/dev/null || true
}

wait_for() { # wait_for PID: set STATUS to its exit status. Signals end "wait", not what is waited for
  while
    STATUS=0
    wait "$1" || STATUS=$?
    kill -0 "$1" 2>/dev/null
  do :; done
  STATUS=0
  wait "$1" || STATUS=$?
}

watch_attempt() { # watch_attempt PID ALARM: ask the run to stop when time is up; end an srun that does not see its end
  local pid=$1 alarm=$2 asked=$SECONDS alarmed=
  trap - USR2 TERM
  exec 3>&- 4>&-
  while pause "$LOOK_S" && kill -0 "$pid" 2>/dev/null; do
    if ((SECONDS - asked >= ASK_S)); then
      asked=$SECONDS
      if time_is_up; then # each time: a process that was just starting did not hear it
        echo "time is up in less than ${EXIT_MARGIN_MINUTES:-15} minutes: asking the run to save and stop"
        kill -USR2 "$pid" 2>/dev/null || true
      fi
    fi
    [[ -z $alarmed && -e $alarm ]] && alarmed=$SECONDS
    if [[ -n $alarmed ]] && ((SECONDS - alarmed > ALARM_S)); then
      echo "srun does not end after its processes failed: ended by force"
      kill -KILL "$pid" 2>/dev/null || true
    fi
  done
}

pause() { # pause SECONDS: without holding on to this script's output
  sleep "$1" >/dev/null 2>&1
}

steps_have_ended() { # wait for the processes of earlier steps to leave; a node that is gone never says that they did
  local tries most=12 steps
  ((${#DOWN[@]})) && most=2
  for ((tries = 0; tries < most; tries++)); do
    steps=$(squeue --noheader --steps --job "$SLURM_JOB_ID" --format='%i %j' 2>/dev/null |
      awk '$1 ~ /\.[0-9]+$/ && $2 != "sentinel" {print $1}') || return 0
    [[ -n $steps ]] || return 0
    # shellcheck disable=SC2086  # several
    ((tries == 0)) && scancel --signal=KILL $steps 2>/dev/null
    pause 5
  done
}
