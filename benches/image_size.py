"""Adds up the size of the image without a container engine.

Usage: image_size.py WEIR

The image of the Dockerfile is its base image and a stripped binary. The base, gcr.io/distroless/cc-debian13, is made
of Debian 13's packages. The script downloads these packages for amd64, checks their digests, and adds up their files
and those of the stripped binary. A registry transfers layers that are compressed, so it also compresses all of it
with zlib at level 6, that of `gzip`.

The list of packages is that of distroless: `static/static.bzl`, `base/config.bzl` and `cc/config.bzl` of
https://github.com/GoogleContainerTools/distroless. Its few own files, for example the list of users, have some
kilobytes and are left out. Where an engine is at hand, `docker image ls` shows the size of the real image.

It needs `strip` and a network.
"""

import gzip
import hashlib
import io
import lzma
import pathlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import urllib.request
import zlib

MIRROR = "http://deb.debian.org/debian"
INDEX = f"{MIRROR}/dists/trixie/main/binary-amd64/Packages.xz"
PACKAGES = [
    # static
    "base-files", "netbase", "tzdata", "media-types", "ca-certificates",
    # base
    "libc6", "libssl3t64", "libzstd1", "zlib1g",
    # cc
    "libgomp1", "libstdc++6", "libgcc-s1", "gcc-14-base",
]
UNPACK = {".xz": lzma.decompress, ".gz": gzip.decompress, "": bytes}
TIMEOUT = 60


def download(address):
    with urllib.request.urlopen(address, timeout=TIMEOUT) as reply:
        return reply.read()


def places(index):
    """The address and the SHA-256 of each package, from Debian's index."""
    found = {}
    for paragraph in index.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.splitlines() if ": " in line and line[0] != " ")
        if fields.get("Package") in PACKAGES:
            found[fields["Package"]] = (fields["Filename"], fields["SHA256"])
    missing = set(PACKAGES) - set(found)
    if missing:
        raise SystemExit(f"Debian 13 has no package {', '.join(sorted(missing))}: see the lists of distroless")
    return found


def data_of(package):
    """The tar file with the files of a package, an ar archive: deb(5)."""
    position = len(b"!<arch>\n")
    while position < len(package):
        header = package[position:position + 60]
        name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
        position += 60
        if name.startswith("data.tar"):
            return UNPACK[name.removeprefix("data.tar")](package[position:position + size])
        position += size + size % 2
    raise SystemExit("a package has no data.tar")


def files_of(tar):
    """The bytes of all files of a tar file. Links and folders have none."""
    with tarfile.open(fileobj=io.BytesIO(tar)) as archive:
        return sum(member.size for member in archive if member.isfile())


def compressed(data):
    return len(zlib.compress(data, 6))


def stripped(binary):
    with tempfile.TemporaryDirectory() as folder:
        to = pathlib.Path(folder) / "weir"
        subprocess.run(["strip", "-o", to, binary], check=True)
        return to.read_bytes()


def main():
    if len(sys.argv) != 2 or not shutil.which("strip"):
        raise SystemExit(__doc__)
    rows = []
    binary = stripped(sys.argv[1])
    rows.append(("weir, stripped", len(binary), compressed(binary)))
    for name, (file, digest) in places(lzma.decompress(download(INDEX)).decode()).items():
        package = download(f"{MIRROR}/{file}")
        if hashlib.sha256(package).hexdigest() != digest:
            raise SystemExit(f"{file} has another digest than the index says: download it again")
        tar = data_of(package)
        rows.append((name, files_of(tar), compressed(tar)))
    rows.append(("**the image**", *(sum(row[column] for row in rows) for column in (1, 2))))
    print("| part | files, MB | compressed, MB |")
    print("| --- | --- | --- |")
    for name, size, small in rows:
        print(f"| {name} | {size / 1e6:.1f} | {small / 1e6:.1f} |")


if __name__ == "__main__":
    main()
