//! `make image-size`: what benches/image_size.py reads from Debian's index and from a package, without a network.

use serde_json::json;

use crate::python::printed;

/// A package is an ar archive: the part before its data has an odd size, so a byte follows it.
#[test]
fn the_files_of_a_package_are_added_up() {
    let program = "
import io, json, lzma, tarfile, image_size
tar = io.BytesIO()
with tarfile.open(fileobj=tar, mode='w') as archive:
    for name, size in [('a', 1000), ('b', 234)]:
        member = tarfile.TarInfo(name)
        member.size = size
        archive.addfile(member, io.BytesIO(bytes(size)))
    link = tarfile.TarInfo('c')
    link.type, link.linkname = tarfile.SYMTYPE, 'a'
    archive.addfile(link)
def part(name, data):
    header = f'{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\\n'.encode()
    return header + data + b'\\n' * (len(data) % 2)
package = b'!<arch>\\n' + part('debian-binary/', b'2.0\\n') + part('control.tar', b'odd') \\
    + part('data.tar.xz', lzma.compress(tar.getvalue()))
print(json.dumps(image_size.files_of(image_size.data_of(package))))
";
    assert_eq!(printed(program, &[]), json!(1234));
}

#[test]
fn a_package_that_debian_does_not_have_is_named() {
    let program = "
import json, image_size
image_size.PACKAGES = ['libc6', 'netbase']
index = 'Package: libc6\\nFilename: pool/c\\nSize: 1\\n y: z\\nSHA256: ab\\n\\nPackage: other\\n'
found = []
try:
    image_size.places(index)
except SystemExit as error:
    found.append(str(error))
found.append(image_size.places(index + '\\nPackage: netbase\\nFilename: pool/n\\nSHA256: cd\\n'))
print(json.dumps(found))
";
    let missing = "Debian 13 has no package netbase: see the lists of distroless";
    let places = json!({ "libc6": ["pool/c", "ab"], "netbase": ["pool/n", "cd"] });
    assert_eq!(printed(program, &[]), json!([missing, places]));
}
