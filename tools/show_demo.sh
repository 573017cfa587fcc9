#!/usr/bin/env bash
# The end of `make demo`: what every run of an example came to, and where that lies. tools/show_demo.sh examples/torch
set -euo pipefail
shopt -s nullglob
for final in "$1"/results/*/final; do
    run=$(basename "$(dirname "$final")")
    if [ -f "$final/metrics.json" ]; then
        printf '\nfinal metrics of %s:\n' "$run"
        cat "$final/metrics.json"
        echo
    fi
    printf '\n%s finished; what it came to lies in %s:\n' "$run" "$final"
    ls -l "$final"
done
[ ! -f "$1/results/report.html" ] || printf '\nall of it on one page, to open in a browser: %s\n' "$1/results/report.html"
