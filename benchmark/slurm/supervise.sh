# shellcheck shell=bash disable=SC2034,SC2153  # variables are used by, and come from, the other files
# Sourced by run_gpt3.sh: the job. It starts the run, and starts it again until it has ended or a person has to look.
#
# Whether to start again is decided by "python -m benchmark next-attempt", from what the processes left in LOG_DIR.
#
# Variables of these files
#   JOB_NODES, UP, DOWN   nodes the job began with, those that can be used, those that cannot
#   NEEDED, DEVICES       nodes the run takes, processes on each
#   EXCLUDED, USED        nodes to leave out for what happened on them, nodes of the attempt
#   STARTED, ATTEMPT      attempts of this job so far, name of the newest in LOG_DIR/attempts
#   SRUN, STATUS          process of the attempt, its exit status
#   ASKED_TO_STOP, ENDED_BY_SLURM   by SIGUSR2, by SIGTERM

SHOWN_LINES=20

supervise() {
  begin_job
  refuse_without_time
  run_from_snapshot
  prepare
  note_surroundings
  queue_next_job
  while true; do
    stop_if_asked
    choose_nodes
    if ((${#USED[@]} < NEEDED)); then
      echo "${#UP[@]} of ${#JOB_NODES[@]} nodes are left, the run takes $NEEDED (failed: ${DOWN[*]})"
      go_on_later
    fi
    new_attempt
    keep_sentinel
    begin_fresh
    echo "attempt $ATTEMPT: ${USED[*]}"
    run_attempt "$LOG_DIR/attempts/$ATTEMPT/launcher.log"
    if ((ENDED_BY_SLURM)); then
      echo "ended by SIGTERM: scancel, preemption or requeue; the same command goes on from the last checkpoint"
      leave "$STATUS"
    fi
    decide
  done
}

run_once() { # evaluate and preflight: from the checkout, once
  begin_job
  prepare
  choose_nodes
  ATTEMPT=${COMMAND}_$SLURM_JOB_ID
  run_attempt /dev/stderr
  leave "$STATUS"
}

begin_job() {
  ASKED_TO_STOP=0 ENDED_BY_SLURM=0 STARTED=0 SRUN='' SENTINEL='' EXCLUDED=() DOWN=()
  trap on_usr2 USR2
  trap on_term TERM
  read_variables
  mkdir -p "$LOG_DIR"
  ulimit -Sn "$(ulimit -Hn)" || true # processes inherit it: docs/slurm.md counts what they open
  # Slurm's output is kept with the run. What writes it lives until everything is written.
  exec 3>&1 4>&2 > >(trap '' TERM USR1 USR2 INT HUP && exec tee -a "$LOG_DIR/slurm_$SLURM_JOB_ID.out") 2>&1
  TEE=$!
}

leave() { # leave STATUS: end the script when its output is written
  if [[ -n $SENTINEL ]]; then kill "$SENTINEL" 2>/dev/null || true; fi
  exec 1>&3 2>&4
  wait "$TEE" 2>/dev/null || true
  exit "$1"
}

refuse_without_time() {
  if [[ ${SLURM_RESTART_COUNT:-0} == 0 ]] && time_is_up; then
    echo "error: the job's time is up in $(seconds_left) s, within EXIT_MARGIN_MINUTES=${EXIT_MARGIN_MINUTES:-15}" >&2
    leave 2
  fi
}

prepare() { # what all attempts have in common
  mapfile -t JOB_NODES < <(job_nodes)
  NODE_SAID=$(scontrol --oneliner show node "${JOB_NODES[0]}" 2>/dev/null) || true
  BINDS=0 # srun complains where it cannot bind processes to cores
  if scontrol show config 2>/dev/null | grep -qE '^TaskPlugin *=.*(affinity|cgroup)'; then BINDS=1; fi
  gpu_options
  choose_python
  check_interpreter
  count_nodes
  train_options
}

count_nodes() { # set NEEDED
  local allocated=${#JOB_NODES[@]}
  NEEDED=${NODES:-$allocated}
  if [[ -z ${NODES:-} && -n $SYSTEM_NODES ]] &&
    ((allocated > SYSTEM_NODES && 8 * (allocated - SYSTEM_NODES) <= SYSTEM_NODES)); then
    NEEDED=$SYSTEM_NODES
  fi
  if ((NEEDED > allocated)); then
    echo "error: NODES=$NEEDED, but the job has $allocated nodes: sbatch --nodes=$NEEDED or more" >&2
    leave 2
  fi
  if ((NEEDED < allocated)); then echo "$NEEDED of $allocated nodes are used, $((allocated - NEEDED)) are spare"; fi
}

choose_nodes() { # set USED: those without a past first
  local node fine=() others=()
  if ((STARTED)); then steps_have_ended; else look_at_nodes; fi # after an attempt decide() has looked
  for node in "${UP[@]}"; do
    if one_of "$node" "${EXCLUDED[@]}"; then others+=("$node"); else fine+=("$node"); fi
  done
  local missing=$((NEEDED - ${#fine[@]})) again=()
  ((missing > 0)) && again=("${others[@]:0:missing}")
  USED=()
  for node in "${UP[@]}"; do # in Slurm's order, in which it numbers the processes
    if ((${#USED[@]} < NEEDED)) && one_of "$node" "${fine[@]}" "${again[@]}"; then USED+=("$node"); fi
  done
}

keep_sentinel() { # on the last node that is up: it requeues the job if this one, the first, is lost (sentinel.sh)
  local node=${UP[-1]}
  if [[ $node == "$SLURMD_NODENAME" ]]; then return 0; fi
  if [[ -n $SENTINEL && $SENTINEL_ON == "$node" ]] && kill -0 "$SENTINEL" 2>/dev/null; then return 0; fi
  if [[ -n $SENTINEL ]]; then kill "$SENTINEL" 2>/dev/null || true; fi
  srun "${ONE_PER_NODE[@]}" --job-name=sentinel --nodes=1 --ntasks=1 --nodelist="$node" \
    bash "$CODE/benchmark/slurm/sentinel.sh" "${NEXT_JOB:-}" >/dev/null 2>&1 </dev/null 3>&- 4>&- &
  SENTINEL=$! SENTINEL_ON=$node
}

begin_fresh() { # the log says that caches were cleared only where the clock begins after it
  local option kept=()
  for option in "${OPTIONS[@]}"; do [[ $option == --cache-cleared ]] || kept+=("$option"); done
  OPTIONS=("${kept[@]}")
  compgen -G "$LOG_DIR/checkpoints/step_*" >/dev/null && return
  if drop_page_caches; then OPTIONS+=(--cache-cleared); fi
}

stop_if_asked() { # between attempts there is no process to see it
  if ((ENDED_BY_SLURM)); then leave 143; fi
  if ((ASKED_TO_STOP)); then go_on_later; fi
  [[ -e $LOG_DIR/exit ]] || return 0
  echo "not started: $LOG_DIR/exit is there (and is removed now)"
  rm -f "$LOG_DIR/exit"
  cancel_next_job
  leave 75
}

decide() { # after an attempt: return to start another one, or end the job
  local said line action status hosts spare words=$LOG_DIR/attempts/$ATTEMPT/decision.txt
  look_at_nodes all
  spare=$((${#UP[@]} - NEEDED))
  local node
  for node in "${UP[@]}"; do
    if one_of "$node" "${EXCLUDED[@]}"; then spare=$((spare - 1)); fi
  done
  local facts=(--status "$STATUS" --spare "$spare")
  ((${#DOWN[@]})) && facts+=(--down-nodes "${DOWN[@]}")
  said=$(one_process "$PYTHON" -m benchmark next-attempt "$LOG_DIR" "${facts[@]}" 2>"$words") || true
  line=$(grep -E '^(done|again|requeue|stop) [0-9]+( |$)' <<<"$said" | tail -n 1) || true
  if [[ -z $line ]]; then
    echo "warning: next-attempt gave no answer: $(tail -n 1 "$words")" >&2
    if ((STATUS == 75)); then line="requeue 75"; else line="stop $((STATUS ? STATUS : 1))"; fi
  fi
  read -r action status hosts <<<"$line"
  # shellcheck disable=SC2086  # hosts have no spaces
  mapfile -t EXCLUDED < <(names_of_hosts $hosts)
  if ((STATUS != 0 && STATUS != 75)) && ! compgen -G "$LOG_DIR/attempts/$ATTEMPT/*.incident.json" >/dev/null; then
    tail -n "$SHOWN_LINES" "$LOG_DIR/attempts/$ATTEMPT/launcher.log" >&2 || true # nobody said what went wrong
  fi
  echo "attempt $ATTEMPT: $(tail -n 1 "$words")"
  case $action in
    done | stop)
      cancel_next_job
      leave "$status"
      ;;
    requeue) go_on_later ;;
    again) # not where it would be stopped before long
      if ((ASKED_TO_STOP)) || time_is_up; then go_on_later; fi
      ;;
  esac
}

on_usr2() { # save and stop: from Slurm, some time before the job's end (--signal), or from a person
  local left
  left=$(seconds_left)
  # Slurm's warning comes 15 to 16 minutes before the end; what is asked for at the margin itself is asked for once.
  if [[ -n $left ]] && ((left < 17 * 60 && left > 60 * ${EXIT_MARGIN_MINUTES:-15})); then return 0; fi
  ASKED_TO_STOP=1
  echo "SIGUSR2: asking the run to save and stop"
  if [[ -n $SRUN ]]; then kill -USR2 "$SRUN" 2>/dev/null || true; fi
}

on_term() {
  ENDED_BY_SLURM=1
  if [[ -n $SRUN ]]; then kill -TERM "$SRUN" 2>/dev/null || true; fi
}
