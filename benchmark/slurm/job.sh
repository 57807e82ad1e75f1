# shellcheck shell=bash disable=SC2034  # variables are used by the other files
# Sourced by run_gpt3.sh and sentinel.sh: what Slurm says of the job, its time and its nodes.

export SLURM_TIME_FORMAT=standard
PROBE_S=60 # for a node to run a process

job_field() { # job_field NAME: a field of the job
  local said
  said=" $(scontrol --oneliner show job "$SLURM_JOB_ID" 2>/dev/null) " || return 0
  if [[ $said =~ [[:space:]]$1=([^[:space:]]*) && ${BASH_REMATCH[1]} != '(null)' ]]; then echo "${BASH_REMATCH[1]}"; fi
}

seconds_of() { # seconds_of [[DAYS-]HOURS:]MINUTES:SECONDS
  local days=0 rest=$1 part total=0 parts
  if [[ $rest == *-* ]]; then days=${rest%%-*} rest=${rest#*-}; fi
  IFS=: read -ra parts <<<"$rest"
  for part in "${parts[@]}"; do total=$((60 * total + 10#$part)); done
  echo $((86400 * 10#$days + total))
}

seconds_left() { # until the job's time is up, as it is now: it may have been extended; nothing where there is no limit
  local left
  left=$(squeue --noheader --job "$SLURM_JOB_ID" --format=%L 2>/dev/null | tr -d ' ') || return 0
  case $left in
    INVALID) echo 0 ;;              # it is over, and Slurm grants a little more
    *[!0-9:-]* | '' | [!0-9]*) ;;   # UNLIMITED, NOT_SET, or no answer
    *) seconds_of "$left" ;;
  esac
}

time_is_up() { # less than the margin is left
  local left
  left=$(seconds_left)
  [[ -n $left ]] && ((left <= 60 * ${EXIT_MARGIN_MINUTES:-15}))
}

submitted_s() { # when the job was submitted or requeued, in seconds since the epoch
  local submitted
  submitted=$(job_field SubmitTime)
  [[ -n $submitted ]] && date --date "$submitted" +%s 2>/dev/null
  return 0
}

joined() { # joined WORD ...: with commas
  local IFS=,
  echo "$*"
}

one_of() { # one_of WORD WORDS ...: whether the first is among the others
  local word=$1
  shift
  [[ " $* " == *" $word "* ]]
}

is_bad_state() { # is_bad_state STATE: as sinfo words it; a suffix says that the node does not answer or has no power
  [[ $1 =~ ^(down|drain|fail|error|unk|inval|future|power|reboot|boot|blocked) || $1 =~ [*~#%!@^]$ ]]
}

job_nodes() { # names of the nodes the job began with, in the order in which Slurm places processes on them
  scontrol show hostnames "$SLURM_JOB_NODELIST"
}

look_at_nodes() { # look_at_nodes [all]: sort the job's nodes into UP and DOWN; "all": see whether they run something
  local now node state list
  declare -A bad=()
  list=$(joined "${JOB_NODES[@]}")
  now=$(job_field NodeList) # a node that failed leaves the job
  [[ -n $now ]] && now=" $(scontrol show hostnames "$now" | tr '\n' ' ')"
  while read -r node state; do
    if is_bad_state "$state"; then bad[$node]=$state; fi
  done < <(sinfo --noheader --Node --nodes="$list" --format='%N %T' 2>/dev/null | sort -u)
  UP=() DOWN=()
  for node in "${JOB_NODES[@]}"; do
    if [[ -n ${bad[$node]:-} || (-n $now && $now != *" $node "*) ]]; then DOWN+=("$node"); else UP+=("$node"); fi
  done
  [[ ${1:-} == all && ${#UP[@]} -gt 0 ]] || return 0
  local silent
  silent=$(silent_nodes "${UP[@]}")
  [[ -n $silent ]] || return 0
  local up=("${UP[@]}")
  UP=()
  for node in "${up[@]}"; do
    # shellcheck disable=SC2086  # names have no spaces
    if one_of "$node" $silent; then DOWN+=("$node"); else UP+=("$node"); fi
  done
}

silent_nodes() { # silent_nodes NODE ...: those that do not run a process; Slurm may take minutes to notice
  local node
  runs_on "$@" && return 0
  for node in "$@"; do
    { runs_on "$node" || echo "$node"; } &
  done
  wait
}

runs_on() { # runs_on NODE ...
  timeout "$PROBE_S" srun "${ONE_PER_NODE[@]}" --nodes="$#" --ntasks="$#" --nodelist="$(joined "$@")" true \
    >/dev/null 2>&1 </dev/null
}
# Steps share the nodes with what may be left of earlier ones: a step on a node that is gone does not end.
ONE_PER_NODE=(--overlap --ntasks-per-node=1 --no-kill=off)

node_address() { # node_address NODE: a name or number by which the other nodes reach it
  local said
  if getent hosts "$1" >/dev/null 2>&1; then
    echo "$1"
    return
  fi
  said=" $(scontrol --oneliner show node "$1" 2>/dev/null) " || said=
  if [[ $said =~ [[:space:]]NodeAddr=([^[:space:]]*) ]]; then echo "${BASH_REMATCH[1]}"; else echo "$1"; fi
}

names_of_hosts() { # names_of_hosts HOST ...: the job's nodes that are called so, with or without a domain
  local node host
  for node in "${JOB_NODES[@]}"; do
    for host in "$@"; do
      if [[ $node == "$host" || ${node%%.*} == "${host%%.*}" ]]; then
        echo "$node"
        break
      fi
    done
  done
}
