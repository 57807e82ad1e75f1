#!/usr/bin/env bash
# sentinel.sh NEXT_JOB [SECONDS]: started by supervise.sh on another node than its own, in a step of the same job.
#
# A job with --no-kill outlives its first node, on which its script ran: it stays "running" on the others with nobody in
# it, until its time is up. Then it is requeued from here; or cancelled, where NEXT_JOB (or "") waits to
# go on. SECONDS between looks.
set -uo pipefail
# shellcheck source=/dev/null
source "$(dirname "$0")/job.sh"
trap '' USR1 USR2 # meant for the run
gone=0
while sleep "${2:-60}"; do
  first=$(job_field BatchHost) now=$(job_field NodeList)
  if [[ -z $first || -z $now ]]; then continue; fi # no answer
  # shellcheck disable=SC2046  # names have no spaces
  if one_of "$first" $(scontrol show hostnames "$now"); then
    gone=0
    continue
  fi
  gone=$((gone + 1))
  if ((gone < 2)); then continue; fi
  if [[ -n ${1:-} ]]; then
    scancel "$SLURM_JOB_ID"
  else
    scontrol requeue "$SLURM_JOB_ID" || scancel "$SLURM_JOB_ID"
  fi
done
