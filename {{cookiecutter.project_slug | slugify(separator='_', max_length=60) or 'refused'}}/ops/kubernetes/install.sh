#!/bin/sh
# kustomize and kubeconform for the tests of the manifests, built by Go: ops/kubernetes/install.sh <folder>
# Builds the two programs into the folder (the tests look into that of their own Python first), unless they are there or on
# the path. Takes about a minute, once. Limits: needs Go 1.23 or newer, or both programs from elsewhere.
set -eu
mkdir -p "$1"
into=$(cd "$1" && pwd)
PATH=$into:$PATH
if command -v kustomize > /dev/null && command -v kubeconform > /dev/null; then
    exit 0
fi
command -v go > /dev/null || {
    echo "kustomize and kubeconform are not here, and neither is Go: install them from their own sites, or Go from go.dev" >&2
    exit 1
}
export GOBIN="$into"
go install sigs.k8s.io/kustomize/kustomize/v5@v5.7.1
go install github.com/yannh/kubeconform/cmd/kubeconform@v0.7.0
