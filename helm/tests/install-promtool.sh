#!/bin/sh
# Puts promtool into target/helm: the one on the path, else the one of Debian's prometheus, which is unpacked and
# not installed, because its package starts a server. Other systems install their package.
set -eu

cd "$(dirname "$0")/../.."
folder=$PWD/target/helm
mkdir -p "$folder"

if [ -x "$folder/promtool" ] && "$folder/promtool" --version >/dev/null 2>&1; then
    exit 0
fi
have() {
    command -v "$1" >/dev/null 2>&1
}
if ! have promtool && have apt-get && have dpkg-deb; then
    echo "make helm-test needs promtool: unpacking Debian's prometheus, once" >&2
    package=$(mktemp -d)
    trap 'rm -rf "$package"' EXIT
    cd "$package"
    # The lists of packages are missing in a new container. Only root can update them.
    apt-get download prometheus || {
        if [ "$(id -u)" = 0 ]; then apt-get update; else sudo apt-get update; fi
        apt-get download prometheus
    }
    dpkg-deb --extract prometheus_*.deb .
    cp usr/bin/promtool "$folder/promtool"
else
    have promtool || sh tests/support/install.sh promtool prometheus golang-github-prometheus prometheus prometheus
    ln -sf "$(command -v promtool)" "$folder/promtool"
fi
"$folder/promtool" --version >&2
