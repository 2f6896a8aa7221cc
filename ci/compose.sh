#!/usr/bin/env bash
# Print the folder to name in DOCKER_CONFIG, with which `docker compose` works: the usual one if it works there already, else
# one that holds compose as a plug-in, built here from its pinned source.
# Limits: to build, Go and its module proxy, and some five minutes; installs nothing. Says on standard error what failed, and fails.
set -euo pipefail
cd "$(dirname "$0")/.."
state=${CONTAINERS_STATE:-$PWD/build/containers}
# shellcheck source=ci/rootfs.sh
. ci/rootfs.sh
module=github.com/docker/compose/v2 version=v2.40.3 sum=h1:XeYkQu1svDtyfZPv5nTwFryQ25ZJMkIlc4pz9HalMPI=
plugin=$state/compose-$version/cli-plugins/docker-compose
mkdir -p "$state"

if docker compose version > /dev/null 2>&1; then
    echo "${DOCKER_CONFIG:-$HOME/.docker}"
    exit
fi
if [ ! -x "$plugin" ]; then
    command -v go > /dev/null || { echo "docker compose is not here, and neither is Go to build it with" >&2; exit 1; }
    source=$state/compose-source
    rm -rf "$source"
    # `go install` refuses it, for the replacements in its go.mod.
    (cd / && "${step[@]}" go mod download -json "$module@$version") > "$source.json" \
        || { echo "the source of compose could not be fetched:" >&2; cat "$source.json" >&2; exit 1; }
    grep -qF "\"Sum\": \"$sum\"" "$source.json" || { echo "the source of compose is not the one that is pinned:" >&2; cat "$source.json" >&2; exit 1; }
    cp -r "$(sed -n 's/^\t"Dir": "\(.*\)",$/\1/p' "$source.json")" "$source"
    chmod -R u+w "$source"
    mkdir -p "$(dirname "$plugin")"
    (cd "$source" && CGO_ENABLED=0 quietly compose timeout --kill-after=10 1500 \
        go build -trimpath -ldflags="-s -w -X $module/internal.Version=$version" -o "$plugin.new" ./cmd)
    mv "$plugin.new" "$plugin"
    rm -rf "$source" "$source.json"
fi
echo "$state/compose-$version"
