#!/usr/bin/env bash
# Hold the project's Kubernetes manifests against kustomize and kubeconform themselves: ci/manifests.sh [python]
# Limits: needs Go, which builds both programs in a minute or more, once, into build/manifests, and its module proxy; or both on
# the path. Where they are not to be had it says `manifests SKIPPED` and why, and does not fail.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$(realpath -s "${1:-.venv/bin/python}")
state=$PWD/build/manifests
mkdir -p "$state"
cd '{{cookiecutter'*

# No step may hang a build, such as a proxy that does not answer.
if ! timeout --kill-after=10 600 ops/kubernetes/install.sh "$state/bin" > "$state/install.log" 2>&1; then
    echo "manifests SKIPPED: kustomize and kubeconform are not to be had here: $(tail -n 1 "$state/install.log")"
    exit 0
fi
export PATH=$state/bin:$PATH PYTHONDONTWRITEBYTECODE=1
timeout --kill-after=10 600 "$python" -m pytest -p no:cacheprovider -q -rs tests/unit/test_manifests.py | tee "$state/tests.log"
# With both programs here no test may have been left out.
! grep -q 'is not here' "$state/tests.log"
