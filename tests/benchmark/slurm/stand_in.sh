#!/usr/bin/env bash
# Stands in for a command of Slurm, or for python3, under the name it is called by. What it is asked goes to $STAND_IN/calls;
# what it answers is in files there.
#
#   left        time left of the job (squeue %L)       states      lines "NODE STATE" (sinfo)
#   nodes       nodes the job has now                  silent      nodes on which nothing runs
#   statuses    exit status of each attempt in turn    decisions   answer of each next-attempt in turn
#   waiting     number of a job that waits             during      commands to run during each attempt
name=${0##*/}
answers=${STAND_IN:?}
{
  printf '%s' "$name"
  printf ' %s' "${@//$'\n'/ }"
  [[ " $* " == *" benchmark train "* ]] && printf ' MASTER_ADDR=%s MASTER_PORT=%s ATTEMPT=%s LAUNCH_ID=%s SUBMITTED_S=%s' \
    "$MASTER_ADDR" "$MASTER_PORT" "$ATTEMPT" "$LAUNCH_ID" "$SUBMITTED_S"
  printf '\n'
} >>"$answers/calls"

next_of() { # next_of FILE: its first line, which is removed; the last one stays
  head -n 1 "$answers/$1"
  if (($(wc -l <"$answers/$1") > 1)); then sed -i 1d "$answers/$1"; fi
}

case "$name $*" in
  "squeue "*--steps*) ;;
  "squeue "*%L*) cat "$answers/left" ;;
  "squeue "*PENDING*) cat "$answers/waiting" 2>/dev/null ;;
  "scontrol show hostnames "*) tr ',' '\n' <<<"$3" ;;
  "scontrol --oneliner show job "*)
    echo "JobId=$4 Partition=main Account=(null) TimeLimit=02:00:00 SubmitTime=2026-01-02T03:04:05 NodeList=$(<"$answers/nodes")" \
      "BatchHost=n1 Features=(null) StdOut=/logs5/slurm-5.out"
    ;;
  "scontrol --oneliner show node "*) echo "NodeName=$4 Gres=gpu:8 NodeAddr=address-of-$4" ;;
  "scontrol requeue "*) kill -TERM "$PPID" ;;
  "sinfo "*%T*) cat "$answers/states" ;;
  "sbatch "*) echo "77;cluster" ;;
  "srun "*" benchmark train "*)
    status=$(next_of statuses)
    # shellcheck source=/dev/null
    if [[ -f $answers/during ]]; then source "$answers/during"; fi
    exit "$status"
    ;;
  "srun "*" true")
    if [[ -f $answers/silent && $* =~ --nodelist=([^ ]*) ]]; then
      while read -r node; do [[ ,${BASH_REMATCH[1]}, == *",$node,"* ]] && exit 1; done <"$answers/silent"
    fi
    ;;
  "srun "*drop_caches*) exit 1 ;;
  "python3 "*interpreter_check*) cat "$answers/interpreter" ;;
  "python3 "*"benchmark next-attempt "*)
    echo "why it is so" >&2
    next_of decisions
    ;;
esac
exit 0
