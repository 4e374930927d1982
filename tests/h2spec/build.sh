#!/bin/sh
# Builds h2spec with one change: its requests are gRPC calls.
#
# Usage: build.sh VERSION FOLDER
#
# h2spec has no option for headers. Without the change its requests are GET, or POST without a content type,
# and weir refuses them with 405 or 415 before a test is over. The binary is FOLDER/h2spec.
set -eu

module=github.com/summerwind/h2spec
# This version of h2spec has no go.mod. The newest releases of them need a newer Go.
dependencies="github.com/fatih/color@v1.13.0 github.com/spf13/cobra@v1.9.1 golang.org/x/net@v0.42.0"

version=$1
mkdir -p "$2"
folder=$(cd "$2" && pwd)
source=$folder/source

fail() {
    echo "build.sh: $1" >&2
    exit 1
}

download=$(go mod download -json "$module@$version") || fail "$module@$version cannot be downloaded: $download"
original=$(printf '%s\n' "$download" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",*$/\1/p')
[ -d "$original" ] || fail "no folder of the source in: $download"

# The files of the module cache are read-only.
[ ! -d "$source" ] || chmod -R u+w "$source"
rm -rf "$source"
cp -R "$original" "$source"
chmod -R u+w "$source"
cd "$source"

# changed FILE TEXT: fails unless the file has the text exactly once.
changed() {
    [ "$(grep -cF "$2" "$1")" = 1 ] || fail "$1 of h2spec $version is not as expected: change build.sh"
}

# Tests change the first header to another method, so it stays the first.
sed 's/HeaderField(":method", "GET")/HeaderField(":method", "POST")/' spec/util.go > changed.go
mv changed.go spec/util.go
changed spec/util.go 'HeaderField(":method", "POST")'

# The content type comes behind all other headers, because tests append further headers. It never
# enters the dynamic table, whose entries the tests of HPACK count.
awk '
    { print }
    /^func \(conn \*Conn\) EncodeHeaders\(/ { inside = 1 }
    inside && /^\t}$/ {
        print "\tif len(headers) > 0 && headers[0].Name == \":method\" {"
        print "\t\tconn.encoder.WriteField(hpack.HeaderField{"
        print "\t\t\tName: \"content-type\", Value: \"application/grpc\", Sensitive: true,"
        print "\t\t})"
        print "\t}"
        inside = 0
    }
' spec/connection.go > changed.go
mv changed.go spec/connection.go
changed spec/connection.go 'Value: "application/grpc", Sensitive: true'

[ -f go.mod ] || go mod init "$module"
# The words of `dependencies` are separate arguments.
# shellcheck disable=SC2086
go get $dependencies
go build -mod=mod -buildvcs=false -o "$folder/h2spec" ./cmd/h2spec
