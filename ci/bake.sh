#!/bin/sh
# Bake a project by hand and in CI alike: ci/bake.sh <python> <folder> [name=value ...]
# Takes the working copy as it stands, asks nothing, refuses a folder that exists already.
# Limits: answers given this way pass through Jinja, as on cookiecutter's own command line; its user settings are not read.
set -eu
python=$1 into=$2
shift 2
root=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$into"
exec "$python" -m cookiecutter "$root" --no-input --default-config --output-dir "$into" "$@"
