#!/bin/sh
# Prints the text of a release: its section of CHANGELOG.md, the digests, and how to verify them.
#
# Usage: notes.sh VERSION IMAGE_DIGEST CHART_DIGEST
set -eu
cd "$(dirname "$0")/../.."
version=$1 image=$2 chart=$3

# From the heading of the version to the next one, or to the links at the end. Links are from the tag, because
# the page of a release is not in the tree.
files=https://github.com/weir-rs/weir/blob/v$version
section=$(awk -v head="## [$version]" '
    /^## / || /^\[[^]]*\]: / { inside = index($0, head) == 1; next }
    inside
' CHANGELOG.md | sed "s#](\([^:)]*\))#]($files/\1)#g")
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

The binaries need a C library of glibc 2.36 or newer: for example Debian 12 or Ubuntu 24.04. Each
archive has completions of shells and manual pages.
[How to verify signatures]($files/SECURITY.md#verifying-a-release).
TEXT
