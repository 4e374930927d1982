#!/bin/sh
# Installs curl by the system's package manager where it is missing, and fails where it cannot: the tests
# run the curl commands of the pages.
set -eu

have() {
    command -v "$1" >/dev/null 2>&1
}

install() {
    if [ "$(id -u)" = 0 ] || [ "$1" = brew ]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        echo "make test needs curl: install it, or let root or sudo run: $*" >&2
        exit 1
    fi
}

if ! have curl; then
    echo "make test needs curl, which is missing: installing it" >&2
    if have apt-get; then
        install apt-get update
        install apt-get install -y --no-install-recommends curl
    elif have dnf; then
        install dnf install -y curl
    elif have apk; then
        install apk add curl
    elif have brew; then
        install brew install curl
    else
        echo "make test knows none of apt-get, dnf, apk and brew here: install curl" >&2
        exit 1
    fi
fi
