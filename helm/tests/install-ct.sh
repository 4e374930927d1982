#!/bin/sh
# Builds ct (chart-testing) into target/helm, with its schema of Chart.yaml.
set -eu

version=v3.14.0

cd "$(dirname "$0")/../.."
folder=$PWD/target/helm
if [ -x "$folder/ct" ] && [ -f "$folder/chart_schema.yaml" ] && [ "$(cat "$folder/ct.version" 2>/dev/null)" = "$version" ]; then
    exit 0
fi
command -v go >/dev/null 2>&1 || {
    echo "make chart-testing needs Go" >&2
    exit 1
}
echo "building ct $version, once" >&2
# A module that requires ct. `go install` also asks for the list of all versions, which not every proxy has.
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
mkdir -p "$folder"
cd "$build"
printf 'module tools\n\ngo 1.24.0\n\nrequire github.com/helm/chart-testing/v3 %s\n' "$version" > go.mod
export GOFLAGS='-modcacherw -mod=mod'
go build -o "$folder/ct" github.com/helm/chart-testing/v3/ct
cp "$(go list -m -f '{{.Dir}}' github.com/helm/chart-testing/v3)/etc/chart_schema.yaml" "$folder/chart_schema.yaml"
echo "$version" > "$folder/ct.version"
