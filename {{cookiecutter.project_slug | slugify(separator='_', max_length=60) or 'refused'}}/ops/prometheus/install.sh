#!/bin/sh
# prometheus and promtool for the tests, from the package of Debian or Ubuntu: ops/prometheus/install.sh <folder>
# Unpacks the two programs into the folder (the tests look into that of their own Python first), unless they are there or
# on the path. Installs nothing, starts no service, needs no root. Limits: needs apt; root alone can fetch its lists anew.
set -eu
mkdir -p "$1"
into=$(cd "$1" && pwd)
PATH=$into:$PATH
if command -v promtool > /dev/null && command -v prometheus > /dev/null; then
    exit 0
fi
command -v apt-get > /dev/null && command -v dpkg-deb > /dev/null || {
    echo "prometheus and promtool are not here, and neither is apt: install them from prometheus.io/download" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
fetch() { apt-get -qq -o APT::Sandbox::User=root download prometheus; }
fetch 2> /dev/null || { [ "$(id -u)" -ne 0 ] || apt-get -qq update; fetch; }
dpkg-deb -x prometheus_*.deb .
install -m 755 usr/bin/prometheus usr/bin/promtool "$into"
"$into/promtool" --version | head -n 1
