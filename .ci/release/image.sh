#!/bin/sh
# Builds the image of this commit for one platform, like a release does.
#
# Usage: image.sh ARCHITECTURE [FLAG]...
#
# ARCHITECTURE is amd64 or arm64, best that of this machine. The flags are those of `docker buildx build`, such as
# `--load --tag weir`. The time of the commit is the time of all files and labels, so the same commit gives the
# same platform image.
set -eu
cd "$(dirname "$0")/../.."

architecture=$1
shift
version=$(.ci/release/version.sh)
commit=$(git log -1 --format=%H)
seconds=$(git log -1 --format=%ct)
created=$(TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd)
# The last FROM line: NAME:TAG@DIGEST.
base=$(sed -n 's/^FROM \([^ ]*@sha256:[^ ]*\)$/\1/p' Dockerfile)

exec docker buildx build \
    --platform "linux/$architecture" \
    --build-arg "VERSION=$version" \
    --build-arg "REVISION=$commit" \
    --build-arg "SOURCE_DATE_EPOCH=$seconds" \
    --label "org.opencontainers.image.created=$created" \
    --label "org.opencontainers.image.base.name=${base%@*}" \
    --label "org.opencontainers.image.base.digest=${base#*@}" \
    "$@" .
