#!/usr/bin/env bash
# Prepares .venv in this clone: PYTHON=python3.12 VENV=.venv tools/setup.sh [extras]
#   TORCH=2.6.0   this version instead of the pinned one
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3}
extras=${1:-workflow,torch,torchdata,tensorboard,adapters,demo,dev}
venv=${VENV:-.venv}

die() { echo "unbroken setup: $*" >&2; exit 1; }

command -v "$python" >/dev/null || die "no $python here; install Python 3.11 or later, or name one: make setup PYTHON=/path/to/python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    die "$("$python" --version 2>&1) is too old, 3.11 or later is needed; name one: make setup PYTHON=python3.12"

if ! "$venv"/bin/python -m pip --version >/dev/null 2>&1; then
    # Debian ships Python without the part of venv that brings pip.
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        die "$python has no venv; on Debian and Ubuntu: apt-get install python3-venv"
    "$python" -m venv --clear "$venv"
    # The pip that Debian 12 brings still installs some packages in a way that it warns about itself.
    "$venv"/bin/python -m pip install --quiet --disable-pip-version-check --upgrade pip
fi
constraints=constraints.txt
if [ -n "${TORCH:-}" ]; then
    constraints=$venv/constraints.txt
    # torch 2.6 asks for a sympy of its own.
    sed -e "s/^torch==.*/torch==$TORCH/" -e "/^sympy==/d" constraints.txt >"$constraints"
fi
"$venv"/bin/python -m pip install --quiet --disable-pip-version-check --constraint "$constraints" --editable ".[$extras]"
