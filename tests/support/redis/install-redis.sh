#!/bin/sh
# Installs redis-server and redis-cli by the system's package manager where they are missing, and
# fails where it cannot: the tests start real servers, and none of them is ever skipped.
set -eu

major_needed=7

have() {
    command -v "$1" >/dev/null 2>&1
}

if ! have redis-server || ! have redis-cli; then
    sh "$(dirname "$0")/../install.sh" redis-server redis-server redis redis redis
    if ! have redis-server || ! have redis-cli; then
        echo "Redis was installed, but redis-server or redis-cli is not on the path" >&2
        exit 1
    fi
fi

version=$(redis-server --version | sed -n 's/.* v=\([0-9.]*\).*/\1/p')
if [ "${version%%.*}" -lt "$major_needed" ]; then
    echo "make test needs Redis $major_needed.0 or newer; redis-server on the path is $version" >&2
    exit 1
fi
