#!/bin/sh
# Installs redis-server and redis-cli by the system's package manager where they are missing, and
# fails where it cannot: the tests start real servers, and none of them is ever skipped.
set -eu

major_needed=7

have() {
    command -v "$1" >/dev/null 2>&1
}

install() {
    if [ "$(id -u)" = 0 ] || [ "$1" = brew ]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        echo "make test needs redis-server: install it, or let root or sudo run: $*" >&2
        exit 1
    fi
}

if ! have redis-server || ! have redis-cli; then
    echo "make test needs redis-server, which is missing: installing it" >&2
    if have apt-get; then
        install apt-get update
        install apt-get install -y --no-install-recommends redis-server
    elif have dnf; then
        install dnf install -y redis
    elif have apk; then
        install apk add redis
    elif have brew; then
        install brew install redis
    else
        echo "make test knows none of apt-get, dnf, apk and brew here: install Redis yourself" >&2
        exit 1
    fi
    have redis-server && have redis-cli || {
        echo "Redis was installed, but redis-server or redis-cli is not on the path" >&2
        exit 1
    }
fi

version=$(redis-server --version | sed -n 's/.* v=\([0-9.]*\).*/\1/p')
if [ "${version%%.*}" -lt "$major_needed" ]; then
    echo "make test needs Redis $major_needed.0 or newer; redis-server on the path is $version" >&2
    exit 1
fi
