#!/usr/bin/env bash
# Stands in for a command of Slurm, or for python3, under the name it is called by. What it is asked goes to $STAND_IN/calls;
# what it answers is in files there.
#
#   state, restarts, exit_code, reason      of the job (scontrol show job)
#   away                            there: Slurm says nothing of the job
#   requeue_status                  exit status of scontrol requeue, which otherwise ends the job
#   left        seconds that the job has; or Unknown   states      lines "NODE STATE" (sinfo)
#   nodes       nodes the job has now                  silent      nodes on which nothing runs
#   statuses    exit status of each attempt in turn    during      commands to run during each attempt
#   caches      commands to run while the page caches are dropped
#   dependencies    commands to run while the script looks for Python
#   waiting     number of a job that waits             plan        what "benchmark plan" prints; without it that fails
#   interpreter, interpreter_status                    what interpreter_check.py prints, and its exit status
#
# The launcher itself is real: $REAL_PYTHON runs it.
name=${0##*/}
if [[ $name == python3 && "$*" == *"-m benchmark.launch"* ]]; then exec "$REAL_PYTHON" "$@"; fi
answers=${STAND_IN:?}
call="$name ${*//$'\n'/ }"
if [[ $call == *" benchmark train "* ]]; then
  for variable in MASTER_ADDR MASTER_PORT ATTEMPT LAUNCH_ID SUBMITTED_S; do call+=" $variable=${!variable}"; done
fi
echo "$call" >>"$answers/calls" # at once: commands run beside each other

next_of() { # next_of FILE: its first line, which is removed; the last one stays
  local lines
  mapfile -t lines <"$answers/$1"
  echo "${lines[0]}"
  if ((${#lines[@]} > 1)); then printf '%s\n' "${lines[@]:1}" >"$answers/$1"; fi
}

answer() { echo "$(<"$answers/$1")"; } # as cat, without a process

# shellcheck disable=SC2329  # what "during" holds calls it
incident() { # incident KIND HOST: what a process of this attempt leaves
  echo '{"time_s": 1.0, "rank": 1, "host": "'"$2"'", "pid": 7, "kind": "'"$1"'", "steps": 3, "phase": "passes",
    "message": "why it is so"}' >"$LOG_DIR/attempts/$ATTEMPT/rank_00001.incident.json"
}

case "$name $*" in
  "squeue "*--steps*) ;;
  "squeue "*PENDING*) cat "$answers/waiting" 2>/dev/null ;;
  "scontrol show hostnames "*) echo "${3//,/$'\n'}" ;;
  "scontrol --oneliner show job "*)
    if [[ -f $answers/away ]]; then exit 1; fi
    exit_code=0:0 state=RUNNING restarts=0 reason=None
    for field in exit_code state restarts reason; do
      if [[ -f $answers/$field ]]; then read -r "${field?}" <"$answers/$field"; fi
    done
    end=$(<"$answers/left")
    if [[ $end != Unknown ]]; then end=$((EPOCHSECONDS + end)); fi
    echo "JobId=$4 Partition=main Account=(null) TimeLimit=02:00:00 SubmitTime=1767323045 EndTime=$end NodeList=$(<"$answers/nodes")" \
      "BatchHost=n1 Features=(null) StdOut=/logs5/slurm-5.out ExitCode=$exit_code JobState=$state Restarts=$restarts Reason=$reason"
    ;;
  "scontrol --oneliner show node "*) echo "NodeName=$4 Gres=gpu:8 NodeAddr=address-of-$4" ;;
  "scontrol requeue "*)
    if [[ -f $answers/requeue_status ]]; then exit "$(<"$answers/requeue_status")"; fi
    kill -TERM "$PPID"
    ;;
  "sinfo "*%T*) answer states ;;
  "sbatch "*) echo "77;cluster" ;;
  "srun "*" benchmark train "*)
    status=$(next_of statuses)
    if ((status == 0)); then echo '{"status": "success"}' >"$LOG_DIR/summary.json"; fi
    # shellcheck source=/dev/null
    if [[ -f $answers/during ]]; then source "$answers/during"; fi
    exit "$status"
    ;;
  "srun "*" true")
    if [[ -f $answers/silent && $* =~ --nodelist=([^ ]*) ]]; then
      while read -r node; do [[ ,${BASH_REMATCH[1]}, == *",$node,"* ]] && exit 1; done <"$answers/silent"
    fi
    ;;
  "srun "*drop_caches*)
    # shellcheck source=/dev/null
    if [[ -f $answers/caches ]]; then source "$answers/caches"; fi
    exit 1
    ;;
  "python3 "*dependencies.py*)
    # shellcheck source=/dev/null
    if [[ -f $answers/dependencies ]]; then source "$answers/dependencies"; fi
    ;;
  "python3 "*interpreter_check* | "srun "*interpreter_check*)
    answer interpreter
    exit "$(<"$answers/interpreter_status")"
    ;;
  "python3 "*" benchmark plan "*) cat "$answers/plan" || exit 1 ;;
esac
exit 0
