#!/usr/bin/env bash
# Runs one step and says in one line how it went and how long it took: tools/step.sh NAME COMMAND [ARGUMENT ...]
name=$1
shift
begin=$SECONDS
"$@"
code=$?
seconds=$((SECONDS - begin))
[ "$code" -eq 0 ] && outcome=ok || outcome="FAILED ($code)"
printf '== %-14s %-12s %5d s\n' "$name" "$outcome" "$seconds"
# The first step of all may be what brings python3.
! command -v python3 >/dev/null || python3 "$(dirname "$0")/stage_times.py" "$name" "$seconds" "$code"
exit "$code"
