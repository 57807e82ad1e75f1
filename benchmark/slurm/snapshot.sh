# shellcheck shell=bash
# Sourced by run_gpt3.sh: the code a run runs, copied into its folder when it begins, and where it ran.
#
#   LOG_DIR/snapshot/code/                 what runs; code.1, code.2, ...: what ran before a NEW_SNAPSHOT
#   LOG_DIR/snapshot/git.txt, git.diff     commit and state of the checkout, and how it differed from the commit
#   LOG_DIR/snapshot/job_JOB_RESTARTS.txt  the job and its nodes as Slurm has them, the network's topology
#   LOG_DIR/snapshot/job_JOB_RESTARTS.json versions, packages, variables (no secrets), devices: environment_snapshot.py

UNTRACKED_KIB=1024 # files git does not know are copied up to this size: code, no data
DIFF_BYTES=10000000

in_git() { git -C "$REPOSITORY" "$@" 2>/dev/null; }

commit_of_checkout() { # as stage/git.py has it; nothing without git
  in_git describe --always --dirty --abbrev=40 '--exclude=*' || true
}

code_files() { # paths of the files to copy, ended by NUL
  if [[ -n $(commit_of_checkout) ]]; then
    in_git ls-files -z
    (cd "$REPOSITORY" && in_git ls-files -z --others --exclude-standard |
      xargs -0 --no-run-if-empty -I{} find {} -maxdepth 0 -type f -size "-${UNTRACKED_KIB}k" -print0)
  else
    (cd "$REPOSITORY" && find . -xdev \( -name .venv -o -name .git -o -name runs -o -name build -o -name __pycache__ \
      -o -path "./$(realpath --relative-to=. "$LOG_DIR")" \) -prune -o -type f -size "-${UNTRACKED_KIB}k" -print0)
  fi
}

copy_code() { # copy_code FOLDER: the checkout as it is now, changed files too; whole or not at all
  local folder=$1 partial=$1.partial name
  rm -rf "$partial"
  mkdir -p "$partial"
  code_files | while IFS= read -r -d '' name; do
    if [[ -f $REPOSITORY/$name ]]; then printf '%s\0' "$name"; fi
  done | tar --create --directory="$REPOSITORY" --null --files-from=- | tar --extract --directory="$partial"
  commit_of_checkout >"$partial/.commit"
  mv "$partial" "$folder"
}

run_from_snapshot() { # set CODE to the run's own copy of the code, made now if there is none
  local snapshot=$LOG_DIR/snapshot number=1 commit
  if [[ ${NEW_SNAPSHOT:-0} == 1 && ${SLURM_RESTART_COUNT:-0} == 0 && -d $snapshot/code ]]; then
    while [[ -e $snapshot/code.$number ]]; do number=$((number + 1)); done
    mv "$snapshot/code" "$snapshot/code.$number"
  fi
  if [[ ! -d $snapshot/code ]]; then
    mkdir -p "$snapshot"
    if ! copy_code "$snapshot/code"; then
      echo "error: $snapshot: the code could not be copied there; see that the disk has room" >&2
      exit 2
    fi
    {
      echo "commit $(commit_of_checkout)"
      echo "branch $(in_git rev-parse --abbrev-ref HEAD)"
      in_git status --short
    } >"$snapshot/git.txt" || true
    in_git diff HEAD --binary | head --bytes="$DIFF_BYTES" >"$snapshot/git.diff" || true
  fi
  CODE=$snapshot/code
  commit=$(cat "$CODE/.commit" 2>/dev/null) || true
  echo "code: $CODE, commit ${commit:-unknown}"
  local now
  now=$(commit_of_checkout)
  if [[ -n $now && $now != "$commit" ]]; then
    echo "code: the checkout is at $now by now, which is not what runs; NEW_SNAPSHOT=1 takes it"
  fi
}

note_surroundings() { # what the job runs on; what cannot be found out is left out, and stops nothing
  local file=$LOG_DIR/snapshot/job_${SLURM_JOB_ID}_${SLURM_RESTART_COUNT:-0}
  {
    scontrol --version
    scontrol show job "$SLURM_JOB_ID"
    sinfo --Node --long --nodes="$(joined "${JOB_NODES[@]}")"
    scontrol show topology
  } >"$file.txt" 2>/dev/null </dev/null || true
  one_process "$PYTHON" -m benchmark.machine.environment_snapshot "$file.json" >/dev/null ||
    echo "warning: $file.json could not be written" >&2
}
