#!/usr/bin/env bash
# Print the name of an image of Prometheus for the local stack: the one that the stack names if it can be pulled, else one that
# is built here from Debian's package, which is older, and good enough to scrape and to be asked.
# Limits: needs a Docker engine; to build, apt and x86-64. Says on standard error what failed, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
state=${CONTAINERS_STATE:-$PWD/build/containers}
# shellcheck source=ci/rootfs.sh
. ci/rootfs.sh
mkdir -p "$state"

# shellcheck disable=SC2016  # sed reads it
named=$(sed -n 's/.*image: ${PROMETHEUS_IMAGE:-\(.*\)}/\1/p' '{{cookiecutter'*/ops/compose.yaml)
if [ -z "${TESTCONTAINERS_RYUK_DISABLED:-}" ] && "${step[@]}" docker pull --quiet "$named" > /dev/null 2>&1; then
    echo "$named"
    exit
fi
image=prometheus-local:$(cat ci/prometheus.sh ci/rootfs.sh ci/images/prometheus/* | sha256sum | cut -c1-12)
if ! docker image inspect "$image" > /dev/null 2>&1; then
    context=$state/prometheus
    rootfs "$context"
    (cd "$context" && fetch prometheus && dpkg-deb -x prometheus_*.deb deb)
    cp "$context"/deb/usr/bin/prometheus "$context/rootfs/bin/"
    mkdir "$context/data"
    echo 'nobody:x:65534:65534:nobody:/:/bin/sh' >> "$context/rootfs/etc/passwd"
    quietly image "${step[@]}" docker build --quiet --tag "$image" --file ci/images/prometheus/Dockerfile "$context"
fi
echo "$image"
