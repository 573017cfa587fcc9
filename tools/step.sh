#!/usr/bin/env bash
# Runs one step and says in one line how it went and how long it took: tools/step.sh NAME COMMAND [ARGUMENT ...]
# A signal to this script, or two minutes after UNBROKEN_TESTS_DEADLINE, interrupts all processes of the step, so that
# tests stop their clusters; what is left after a minute more is killed.
name=$1
shift
begin=$SECONDS
set -m # each job below is a process group
"$@" &
step=$!
stops=()
stop_after() {
    { sleep "$1"; kill -INT -- "-$step"; sleep 60; kill -KILL -- "-$step"; } >/dev/null 2>&1 &
    stops+=("-$!")
    disown # no word of its end
}
trap 'stop_after 0' INT TERM HUP
if [ -n "${UNBROKEN_TESTS_DEADLINE:-}" ]; then
    left=$((UNBROKEN_TESTS_DEADLINE + 120 - $(date +%s)))
    stop_after "$((left > 60 ? left : 60))"
fi
# A signal ends `wait` before the step.
while wait "$step"; code=$?; kill -0 "$step" 2>/dev/null; do :; done
[ "${#stops[@]}" -eq 0 ] || kill -- "${stops[@]}" 2>/dev/null
[ "$code" -eq 0 ] && outcome=ok || outcome="FAILED ($code)"
printf '== %-14s %-12s %5d s\n' "$name" "$outcome" "$((SECONDS - begin))"
exit "$code"
