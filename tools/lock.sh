#!/usr/bin/env bash
# Writes constraints.txt anew: what pip resolves today, in a fresh environment, from pyproject.toml alone.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-python3.11}
# The releases whose behaviour was measured; everything else is the newest that fits.
torch=${TORCH:-2.13.0}
tensorflow=${TENSORFLOW:-2.21.0}
fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

"$python" -m venv "$fresh/venv"
"$fresh/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    --editable ".[workflow,torch,torchdata,tensorboard,adapters,tensorflow,demo,dev,presets,frameworks,mutants]" "torch==$torch" "tensorflow-cpu==$tensorflow"
{
    cat <<'HEAD'
# Exact versions with which unbroken is tested: make setup installs these. Written by `make lock`, never by hand.
# Made with the oldest supported Python (3.11). No index is named here: your pip decides where packages come from.
# torch stands without its local part (+cpu, +cu130): `torch==2.13.0` accepts each build, so that the same file serves a
# laptop and a GPU node. For the same reason the CUDA libraries are left to torch, which pins them itself.
HEAD
    "$fresh/venv/bin/python" -m pip freeze --exclude-editable |
        sed -E '/^(-e|#)/d; s/\+[A-Za-z0-9.]+$//; /^(nvidia-|cuda-|triton==)/d'
} >"$fresh/constraints.txt"
mv "$fresh/constraints.txt" constraints.txt
