#!/usr/bin/env bash
# Print the name of a base for the project's Dockerfile: the one that stands there if it can be pulled, else one that is built
# here, from this machine's Debian packages (Python, Java) and with the certificates that this machine trusts.
# Limits: needs a Docker engine; to build, root, apt and Debian. Says on standard error what failed, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
state=${CONTAINERS_STATE:-$PWD/build/containers}
step=(timeout --kill-after=10 300)
# A whole Debian is unpacked: a minute or two alone, more than five beside other work on two cores.
long=(timeout --kill-after=10 900)
packages=python3,python3-venv,ca-certificates,default-jre-headless,tini
mkdir -p "$state"

named=$(sed -n 's/^ARG BASE=//p' '{{cookiecutter'*/Dockerfile)
if [ -z "${TESTCONTAINERS_RYUK_DISABLED:-}" ] && "${step[@]}" docker pull --quiet "$named" > /dev/null 2>&1; then
    echo "$named"
    exit
fi
# shellcheck disable=SC2016  # apt and mmdebstrap expand these
sources=$(apt-get indextargets --format 'deb $(REPO_URI) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' | sort -u)
# shellcheck disable=SC1091
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
image=python-local:$suite-$(cat ci/base.sh - <<< "$sources" | sha256sum | cut -c1-12)
if ! docker image inspect "$image" > /dev/null 2>&1; then
    tool=$state/mmdebstrap
    rm -rf "$tool"
    mkdir -p "$tool"
    download=("${step[@]}" apt-get -qq -o APT::Sandbox::User=root download mmdebstrap)
    (cd "$tool" && { "${download[@]}" || { "${step[@]}" apt-get update -qq && "${download[@]}"; }; } && dpkg-deb -x mmdebstrap_*.deb .) >&2
    # shellcheck disable=SC2016
    PATH=$tool/usr/bin:$PATH "${long[@]}" mmdebstrap --quiet --variant=apt --include="$packages" \
        --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
        --customize-hook='sync-in /usr/local/share/ca-certificates /usr/local/share/ca-certificates' \
        --customize-hook='chroot "$1" update-ca-certificates' \
        --customize-hook='printf "[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n" > "$1/etc/pip.conf"' \
        "$suite" "$state/base.tar" <<< "$sources" > "$state/base.log" 2>&1 || { tail -n 20 "$state/base.log" >&2; exit 1; }
    docker import "$state/base.tar" "$image" > /dev/null
    rm -f "$state/base.tar"
fi
echo "$image"
