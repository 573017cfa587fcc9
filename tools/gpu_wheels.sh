#!/usr/bin/env bash
# Gathers in build/gpu-wheels what tools/gpu.py installs where there is no network: unbroken and what its tests import.
#   GPU_PYTHON='3.12'   the releases of Python that such a machine may have
set -euo pipefail
cd "$(dirname "$0")/.."
read -ra versions <<<"${GPU_PYTHON:-3.11 3.12 3.13}"
python=.venv/bin/python
folder=build/gpu-wheels
# Never torch, nor what comes with it: the machine has its own.
packages=(execnet iniconfig packaging pluggy psutil Pygments pytest pytest-timeout pytest-xdist xxhash)

rm -rf "$folder"
mkdir -p "$folder"
pip=("$python" -m pip --quiet --disable-pip-version-check)
"${pip[@]}" wheel --no-deps --no-build-isolation --wheel-dir "$folder" .
platforms=()
for glibc in 28 27 24 17 12 5; do platforms+=(--platform "manylinux_2_${glibc}_x86_64"); done
platforms+=(--platform manylinux2014_x86_64 --platform manylinux2010_x86_64 --platform manylinux1_x86_64 --platform linux_x86_64)
for version in "${versions[@]}"; do
    "${pip[@]}" download --no-deps --only-binary=:all: --python-version "$version" --implementation cp "${platforms[@]}" \
        --constraint constraints.txt --dest "$folder" "${packages[@]}"
done
du -sh "$folder"
