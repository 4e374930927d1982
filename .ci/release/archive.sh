#!/bin/sh
# Packs a binary with its licence, README, completions and manual pages, and prints the path of the archive.
#
# Usage: archive.sh WEIR ARCHITECTURE FOLDER
#
# WEIR has to run on this machine. All files have the time of the commit, so the same binary gives the same
# archive, FOLDER/weir-VERSION-linux-ARCHITECTURE.tar.gz.
set -eu
weir=$(realpath "$1") architecture=$2
mkdir -p "$3"
folder=$(realpath "$3")
cd "$(dirname "$0")/../.."

name=weir-$(.ci/release/version.sh)-linux-$architecture
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/$name/completions"
cp LICENSE README.md CHANGELOG.md "$work/$name"
install -m 755 "$weir" "$work/$name/weir"
for shell in bash elvish fish powershell zsh; do
    "$weir" completions "$shell" > "$work/$name/completions/weir.$shell"
done
"$weir" man "$work/$name/man" >&2

tar --create --sort=name --owner=0 --group=0 --numeric-owner --mode=u+rw,go=rX \
    --mtime="@$(git log -1 --format=%ct)" --directory "$work" "$name" | gzip --no-name -9 > "$folder/$name.tar.gz"
echo "$folder/$name.tar.gz"
