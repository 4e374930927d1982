#!/bin/sh
# Prints the version of this tree. Fails unless all files that name it agree.
#
# Usage: version.sh [TAG]
#
# With a tag, such as v0.1.0, the tag has to agree too, and the changelog has to date the release.
set -eu
cd "$(dirname "$0")/../.."

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' Cargo.toml)
wrong=0

# has FILE TEXT: the file has the text as a whole line, with or without quotes.
has() {
    tr -d '"' < "$1" | grep -qxF -- "$2" || {
        echo "$1: no line \`$2\`, but Cargo.toml has the version $version" >&2
        wrong=1
    }
}
has Dockerfile "ARG VERSION=$version"
has CITATION.cff "version: $version"
has helm/weir/Chart.yaml "version: $version"
has helm/weir/Chart.yaml "appVersion: $version"
grep -qE "^## \[$version\] - ([0-9]{4}-[0-9]{2}-[0-9]{2}|not released)\$" CHANGELOG.md || {
    echo "CHANGELOG.md: no line \`## [$version] - YYYY-MM-DD\`" >&2
    wrong=1
}

if [ $# -gt 0 ]; then
    [ "$1" = "v$version" ] || {
        echo "the tag is $1, but Cargo.toml has the version $version: tag v$version" >&2
        wrong=1
    }
    if grep -qF "## [$version] - not released" CHANGELOG.md; then
        echo "CHANGELOG.md: $version has no date; write \`## [$version] - $(date -u +%Y-%m-%d)\`" >&2
        wrong=1
    fi
fi
[ "$wrong" = 0 ] || exit 1
echo "$version"
