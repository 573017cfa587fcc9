#!/bin/sh
# Factors numbers, one after the other; knows nothing of unbroken.
# usage: factors.sh HOW_MANY STOP_FILE     goes on where done.txt says; exit code 85: told to stop, there is more to do
set -eu
goal=$1 stop=$2
trap '' TERM # the stop file is enough
n=0
if [ -e done.txt ]; then n=$(cat done.txt); fi
while [ "$n" -lt "$goal" ] && [ ! -e "$stop" ]; do
    n=$((n + 1))
    echo "$n $(factor $((n * 1000003 * 1000033 + 1)))" >>factors.txt
    # A restart file that is never half written: another name first.
    echo "$n" >done.tmp
    mv done.tmp done.txt
    sleep 0.05
done
[ "$n" -ge "$goal" ] || exit 85
