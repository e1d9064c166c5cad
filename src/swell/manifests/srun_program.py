"""The programs `srun` and `scontrol` of a batch script, as texts in the language of every shell.

They are programs, not functions of the script's own shell, so that `timeout 5 srun …` and Python's `subprocess` find
them, too. A batch script writes them where it runs, and puts their folder first on its PATH.
"""

from __future__ import annotations

import hashlib
import shlex

from swell.manifests.srun_options import OPTIONS, SrunOutcome, Takes

READ = r"""#!/bin/sh
fail() { echo "srun: $1" >&2; exit 2; }
see='docs/slurm.md of Swell lists the options'
is_number() { case $1 in ''|*[!0-9]*) return 1 ;; esac; }
tasks= per_node= nodes=1 folder= out= err= in= export=ALL label= each=${SWELL_GPUS_PER_TASK:-0} mode=truncate limit=
while [ $# -gt 0 ]; do
  has= value= more=
  case $1 in
    --) shift; break ;;
    --*=*) word=${1%%=*} value=${1#*=} has=1 ;;
    --*) word=$1 ;;
    -?*) more=${1#-?} word=${1%"$more"} ;;
    *) break ;;
  esac
  shift
  case $word in
@CASES@
    *) fail "$word is no option of srun; $see" ;;
  esac
  case $takes in
    no) [ -z "$has" ] || fail "$word takes no value"; [ -z "$more" ] || set -- "-$more" "$@" ;;
    perhaps) [ -z "$more" ] || value=$more ;;
    yes)
      if [ -n "$more" ]; then value=${more#=}
      elif [ -z "$has" ]; then [ $# -gt 0 ] || fail "$word has no value; write $word VALUE"; value=$1; shift; fi ;;
  esac
  case $name in
    chdir) folder=$value ;;
    cpus-per-task) is_number "$value" || fail "$word $value is no number of CPUs"
      export SLURM_CPUS_PER_TASK="$value" ;;
    error) err=$value ;;
    export) export=$value ;;
    gpus-per-task) each=${value##*:}; is_number "$each" || fail "$word $value is no number of GPUs" ;;
    help|usage) echo "srun [OPTION]... PROGRAM [ARGUMENT]...  ($see)"; exit 0 ;;
    input) in=$value ;;
    jobid) [ "$value" = "$SLURM_JOB_ID" ] || fail "$word $value is another job; leave it out" ;;
    label) label=1 ;;
    nodes) nodes=${value%%-*}; is_number "$nodes" || fail "$word $value is no number of nodes" ;;
    ntasks) tasks=$value; is_number "$tasks" && [ "$tasks" -gt 0 ] || fail "$word $value is no number of tasks" ;;
    ntasks-per-node) per_node=$value; is_number "$value" && [ "$value" -gt 0 ] || fail "$word $value is no number" ;;
    open-mode) mode=$value; case $mode in append|truncate) ;; *) fail "$word must be append or truncate" ;; esac ;;
    output) out=$value ;;
    time) limit=$value ;;
    version) echo 'srun of Swell'; exit 0 ;;
  esac
done
[ $# -gt 0 ] || fail 'no command; write srun PROGRAM ARGUMENT...'
[ -n "$tasks" ] || { [ -z "$per_node" ] || tasks=$((per_node * nodes)); }
tasks=${tasks:-$SLURM_NTASKS}
"""
RUN = r"""
# Days-hours:minutes:seconds, in any of Slurm's short forms, as seconds.
seconds() {
  echo "$1" | awk -F: '
    !/^([0-9]+-)?[0-9]+(:[0-9]+)?(:[0-9]+)?$/ { exit 1 }
    { has = split($0, d, "-") == 2; if (has) sub(/^[0-9]+-/, "")
      if (has) s = ((d[1] * 24 + $1) * 60 + $2) * 60 + $3
      else s = NF == 3 ? ($1 * 60 + $2) * 60 + $3 : $1 * 60 + $2
      printf "%d", s }'
}
# The name of a file: $1, with what its patterns mean for task $2, in $found.
expand() {
  rest=$1 found=
  while :; do
    case $rest in *%*) ;; *) found=$found$rest; return ;; esac
    found=$found${rest%%%*} rest=${rest#*%}
    width=${rest%%[!0-9]*}; rest=${rest#"$width"}; tail=${rest#?} letter=${rest%"${rest#?}"} pads=1
    case $letter in
      t) meant=$2 ;; n) meant=0 ;; s) meant=$SLURM_STEP_ID ;; j) meant=$SLURM_JOB_ID ;;
      A) meant=${SLURM_ARRAY_JOB_ID:-$SLURM_JOB_ID} ;; J) meant=$SLURM_JOB_ID.$SLURM_STEP_ID ;;
      a) meant=${SLURM_ARRAY_TASK_ID:-0} ;;
      x) meant=$SLURM_JOB_NAME pads= ;; u) meant=$SLURM_JOB_USER pads= ;; N) meant=$SLURMD_NODENAME pads= ;;
      %) meant=% pads= ;; *) meant=%$width$letter pads= ;;
    esac
    case $width in ?|0?|10) while [ -n "$pads" ] && [ ${#meant} -lt "$width" ]; do meant=0$meant; done ;; esac
    found=$found$meant rest=$tail
  done
}
# Where a stream of task $2 goes, by the option $1, in $found; empty: where srun's own goes.
goes() {
  case $1 in
    ''|all) found= ;;
    none) found=/dev/null ;;
    *[!0-9]*) expand "$1" "$2" ;;
    *) [ "$1" -eq "$2" ] && found= || found=/dev/null ;;
  esac
}
# Only what --export names, and what Swell and Slurm say.
keep_only() {
  kept=" $1 "
  for name in $(env | sed -n 's/^\([A-Za-z_][A-Za-z0-9_]*\)=.*/\1/p'); do
    case $name in
      SLURM_*|SLURMD_*|SWELL_*|CUDA_VISIBLE_DEVICES|NVIDIA_VISIBLE_DEVICES|NUM_GPUS) ;;
      PATH|HOME|PWD|_|NODE_RANK|MASTER_ADDR|MASTER_PORT) ;;
      *) case $kept in *" $name "*) ;; *) unset "$name" ;; esac ;;
    esac
  done
}
pass_on() {
  asked=$1, has_all= names=
  while [ -n "$asked" ]; do
    one=${asked%%,*}
    case $one in
      *="'"*) one=${asked%%"'"*} tail=${asked#*"'"}; one=$one${tail%%"'"*} asked=${tail#*"'"} asked=${asked#,} ;;
      *) asked=${asked#*,} ;;
    esac
    name=${one%%=*}
    case $one in
      ''|NONE|NIL) continue ;;
      ALL) has_all=1; continue ;;
    esac
    case $name in [!A-Za-z_]*|*[!A-Za-z0-9_]*|'') fail "--export names $one, which is no variable" ;; esac
    names="$names $name"
    case $one in *=*) export "$one" ;;
    esac
  done
  [ -n "$has_all" ] || keep_only "$names"
}
export SLURM_STEP_ID=0 SLURM_STEPID=0
devices=${CUDA_VISIBLE_DEVICES-} number=$(echo "${CUDA_VISIBLE_DEVICES-}" | awk -F, '{ print NF }')
if [ "$each" -gt 0 ] && [ "$each" != "${SWELL_GPUS_PER_TASK:-0}" ] && [ $((each * tasks)) -gt "$number" ]; then
  fail "--gpus-per-task $each for $tasks tasks: the job has $number GPUs"
fi
case $limit in 0|UNLIMITED|INFINITE|infinite|unlimited) limit= ;; esac
if [ -n "$limit" ]; then
  limit=$(seconds "$limit") || fail '--time is no time; write minutes, 1:30:00 or 2-12'
  set -- timeout --kill-after=30 "$limit" "$@"
fi
pass_on "$export"
rank=0
while [ "$mode" = truncate ] && [ "$rank" -lt "$tasks" ]; do
  for stream in "$out" "$err"; do
    goes "$stream" "$rank"
    case $found in ''|/dev/*) ;; *) : >"$found" || exit 1 ;; esac
  done
  rank=$((rank + 1))
done
pipes= readers= pids= failed=0 rank=0
if [ -n "$label" ]; then pipes=$(mktemp -d) || exit 1; trap 'rm -rf "$pipes"' EXIT; fi
trap 'kill $pids 2>/dev/null' TERM INT HUP
while [ "$rank" -lt "$tasks" ]; do
  goes "$in" "$rank"; from=$found
  goes "$out" "$rank"; to=$found
  goes "$err" "$rank"; errors=$found
  [ -n "$err" ] || [ -z "$out" ] || errors=$to
  if [ -n "$label" ]; then
    mkfifo "$pipes/o$rank" "$pipes/e$rank" || exit 1
    sed -u "s/^/$rank: /" <"$pipes/o$rank" >>"${to:-/proc/self/fd/1}" & readers="$readers $!"
    sed -u "s/^/$rank: /" <"$pipes/e$rank" >>"${errors:-/proc/self/fd/2}" & readers="$readers $!"
    to=$pipes/o$rank errors=$pipes/e$rank
  fi
  (
    trap - TERM INT HUP EXIT
    [ -z "$from" ] || exec <"$from" || exit 1
    [ -z "$to" ] || exec >>"$to" || exit 1
    [ -z "$errors" ] || { [ "$errors" = "$to" ] && exec 2>&1; } || exec 2>>"$errors" || exit 1
    [ -z "$folder" ] || cd -- "$folder" || exit 1
    if [ "$each" -gt 0 ]; then
      CUDA_VISIBLE_DEVICES=$(echo "$devices" | cut -d, -f$((rank * each + 1))-$((rank * each + each)))
      export CUDA_VISIBLE_DEVICES
    fi
    export SLURM_PROCID="$rank" SLURM_LOCALID="$rank" SLURM_NTASKS="$tasks" SLURM_NPROCS="$tasks"
    export SLURM_STEP_NUM_TASKS="$tasks" SLURM_STEP_TASKS_PER_NODE="$tasks"
    exec "$@"
  ) <&0 &
  pids="$pids $!"; rank=$((rank + 1))
done
# A signal ends `wait` early; the task is waited for until it is gone.
for pid in $pids; do
  while :; do wait "$pid"; code=$?; kill -0 "$pid" 2>/dev/null || break; done
  [ "$failed" -ne 0 ] || failed=$code
done
for pid in $readers; do wait "$pid"; done
exit "$failed"
"""
SCONTROL = r"""#!/bin/sh
# `scontrol show hostnames [LIST]` prints the machines of a list such as node[1-3,7], one on each line.
case "$1 $2" in
  'show hostnames'|'show hostname') ;;
  *) echo 'scontrol: only `scontrol show hostnames [LIST]` is known here; see swell show' >&2; exit 2 ;;
esac
printf '%s\n' "${3-$SLURM_JOB_NODELIST}" | awk '
  function print_all(text,   open, close_, head, tail, inside, parts, count, i, ends, n, form) {
    open = index(text, "["); close_ = index(text, "]")
    if (!open || close_ < open) { print text; return }
    head = substr(text, 1, open - 1); tail = substr(text, close_ + 1)
    count = split(substr(text, open + 1, close_ - open - 1), parts, ",")
    for (i = 1; i <= count; i++) {
      if (split(parts[i], ends, "-") < 2) { print_all(head parts[i] tail); continue }
      form = "%0" length(ends[1]) "d"
      for (n = ends[1] + 0; n <= ends[2] + 0 && made++ < 100000; n++) print_all(head sprintf(form, n) tail)
    }
  }
  { depth = 0; word = ""
    for (at = 1; at <= length($0); at++) {
      letter = substr($0, at, 1)
      depth += (letter == "[") - (letter == "]")
      if (letter == "," && !depth) { print_all(word); word = "" } else word = word letter
    }
    if (word != "") print_all(word) }'
"""


def _cases() -> str:
    """An arm for each way in which options are alike; a kept or refused one has its own."""
    ignored = {
        takes: [
            word for one in OPTIONS if (one.outcome, one.takes) == (SrunOutcome.IGNORED, takes) for word in one.words
        ]
        for takes in Takes
    }
    lines = []
    for one in OPTIONS:
        words = "|".join(one.words)
        if one.outcome is SrunOutcome.KEPT:
            lines.append(f"    {words}) takes={one.takes} name={one.name} ;;")
        elif one.outcome is SrunOutcome.REFUSED:
            lines.append(f"    {words}) fail {shlex.quote(f'--{one.name} {one.meaning}')} ;;")
    lines += [f"    {'|'.join(words)}) takes={takes} name= ;;" for takes, words in ignored.items()]
    return "\n".join(lines)


SRUN = READ.replace("@CASES@", _cases()) + RUN
PROGRAMS = {"srun": SRUN, "scontrol": SCONTROL}
VERSION = hashlib.sha256("\0".join(PROGRAMS.values()).encode()).hexdigest()[:12]
END = "end of a program of swell"


def install_lines() -> str:
    """Lines of a shell that write the programs where they are missing, for all jobs of one user, and find them.

    A folder that cannot be written, or from which nothing may be started, is replaced by one in TMPDIR.
    """
    writes = "\n".join(
        f'  [ -x "$1/{name}" ] || {{ draft=$(mktemp "$1/.XXXXXX" 2>/dev/null) && cat >"$draft" && '
        f'chmod 755 "$draft" && mv -f "$draft" "$1/{name}"; }} <<\'{END}\'\n{text}{END}'
        for name, text in PROGRAMS.items()
    )
    return f"""\
swell_programs() {{
  [ -n "$1" ] && mkdir -p "$1" 2>/dev/null || return 1
{writes}
  [ -x "$1/srun" ] && [ -x "$1/scontrol" ]
}}
swell_folder=${{XDG_CACHE_HOME:-${{HOME:+$HOME/.cache}}}}
swell_folder=${{swell_folder:+$swell_folder/swell/slurm-{VERSION}}}
swell_programs "$swell_folder" || {{ swell_folder=$(mktemp -d) && swell_programs "$swell_folder"; }} || exit 1
export PATH="$swell_folder:$PATH"
unset -f swell_programs; unset swell_folder
"""
