#!/usr/bin/env bash
# Runs one step and says in one line how it went and how long it took: tools/step.sh NAME COMMAND [ARGUMENT ...]
name=$1
shift
begin=$SECONDS
"$@"
code=$?
[ "$code" -eq 0 ] && outcome=ok || outcome="FAILED ($code)"
printf '== %-14s %-12s %5d s\n' "$name" "$outcome" "$((SECONDS - begin))"
exit "$code"
