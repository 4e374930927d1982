#!/bin/sh
# Prints the text of a release: its section of CHANGELOG.md, the digests, and how to verify them.
#
# Usage: notes.sh VERSION IMAGE_DIGEST CHART_DIGEST
set -eu
cd "$(dirname "$0")/../.."
version=$1 image=$2 chart=$3

# From the heading of the version to the next one, or to the links at the end.
section=$(awk -v head="## [$version]" '
    /^## / || /^\[[^]]*\]: / { inside = index($0, head) == 1; next }
    inside
' CHANGELOG.md)
[ -n "$section" ] || {
    echo "notes.sh: CHANGELOG.md has no text about $version" >&2
    exit 1
}

# shellcheck disable=SC2016 # The backquotes are Markdown.
bases=$(sed -n 's/^FROM \([^ ]*@sha256:[^ ]*\).*/`\1`/p' Dockerfile | paste -sd, - | sed 's/,/, /g')

printf '%s\n' "$section"
cat <<TEXT

## Files

| | |
| --- | --- |
| image, for amd64 and arm64 | \`ghcr.io/weir-rs/weir:$version@$image\` |
| chart | \`oci://ghcr.io/weir-rs/charts/weir\`, \`--version $version\`, digest \`$chart\` |
| base images | $bases |

The binaries need a C library of glibc 2.36 or newer: Debian 12, Ubuntu 22.10 or Fedora 37, for example. Each
archive has completions of shells and manual pages.
[How to verify signatures](https://github.com/weir-rs/weir/blob/v$version/SECURITY.md#verifying-a-release).
TEXT
