#!/bin/sh
# deploy/wheels.sh DIRECTORY VERSION...: podvisor's own wheel, and those of requirements.txt for each version of Python.
set -eu
directory=$1
shift
cd "${0%/*}/.."
python3 -m pip wheel --quiet --no-deps --wheel-dir "$directory" .
for version in "$@"; do
  python3 -m pip download --quiet --no-deps --dest "$directory" --only-binary=:all: --python-version "$version" \
    --require-hashes --requirement deploy/requirements.txt
done
