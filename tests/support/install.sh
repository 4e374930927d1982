#!/bin/sh
# Installs a package by the system's package manager, and fails where it cannot: no test is ever skipped.
#
#     install.sh WHAT APT DNF APK BREW
#
# WHAT is for messages. The others are the package's names.
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
        echo "make test needs $what: install it, or let root or sudo run: $*" >&2
        exit 1
    fi
}

what=$1
echo "make test needs $what, which is missing: installing it" >&2
if have apt-get; then
    install apt-get update
    install apt-get install -y --no-install-recommends "$2"
elif have dnf; then
    install dnf install -y "$3"
elif have apk; then
    install apk add "$4"
elif have brew; then
    install brew install "$5"
else
    echo "make test knows none of apt-get, dnf, apk and brew here: install $what yourself" >&2
    exit 1
fi
