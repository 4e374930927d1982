#!/bin/sh
# Prints the path of a valkey-server: the one on the path, else the one of Debian's backports, which
# is unpacked into target/valkey and not installed.
set -eu

if command -v valkey-server; then
    exit 0
fi
cd "$(dirname "$0")/../../.."
server=$PWD/target/valkey/usr/bin/valkey-server
if ! "$server" --version >/dev/null 2>&1; then
    command -v dpkg-deb >/dev/null || {
        echo "make test-valkey needs valkey-server on the path" >&2
        exit 1
    }
    pool=http://deb.debian.org/debian/pool/main/v/valkey
    package=valkey-tools_8.0.1+dfsg1-1~bpo12+1_amd64.deb
    mkdir -p target/valkey
    echo "fetching $pool/$package" >&2
    curl --fail --silent --show-error --output "target/valkey/$package" "$pool/$package"
    dpkg-deb --extract "target/valkey/$package" target/valkey
    # One program under many names, of which this one is in another package.
    ln -sf valkey-check-rdb "$server"
    "$server" --version >&2
fi
echo "$server"
