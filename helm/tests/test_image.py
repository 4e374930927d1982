"""The Dockerfile, without a container engine: its instructions, and that all copied files exist."""

import json
import re
import shutil
import subprocess
from pathlib import Path

from chart import ROOT, WEIR

TEXT = (ROOT / "Dockerfile").read_text()


def instructions():
    """Each instruction with its words, joined over continued lines."""
    lines = [line for line in TEXT.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [tuple(line.split(maxsplit=1)) for line in joined.splitlines() if line.strip()]


def stages():
    found = []
    for word, rest in instructions():
        if word == "FROM":
            found.append((rest, []))
        else:
            found[-1][1].append((word, rest))
    return found


def copied():
    """What the build copies from the repository."""
    return [path for word, rest in stages()[0][1] if word == "COPY" for path in rest.split()[:-1]]


def test_base_images_have_the_digest_of_their_index():
    """In the FROM line itself: Dependabot reads no ARG. `scratch` has no digest."""
    bases = [base.split(" AS ")[0] for base, _ in stages()]
    assert len(bases) == 3
    for base in bases:
        assert base == "scratch" or re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", base), base


def test_the_last_stage_has_no_shell_and_runs_without_root():
    base, steps = stages()[-1]
    assert re.fullmatch(r"gcr\.io/distroless/cc-debian13:nonroot@sha256:[0-9a-f]{64}", base)
    words = [word for word, _ in steps]
    assert "RUN" not in words and "ADD" not in words
    found = dict(steps)
    assert found["USER"] == "65534:65534"
    assert json.loads(found["ENTRYPOINT"]) == ["/bin/weir"]
    assert found["EXPOSE"].split() == ["8081", "8080"]
    assert [rest for word, rest in steps if word == "COPY"] == ["--from=build /image/bin/ /bin/"]


def test_the_health_check_is_a_command_of_weir():
    """In its exec form, because the image has no shell."""
    (check,) = [rest for word, rest in stages()[-1][1] if word == "HEALTHCHECK"]
    program, command = json.loads(check.partition(" CMD ")[2])
    assert program == "/bin/weir"
    run = subprocess.run([WEIR, command, "--help"], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_labels_have_version_and_revision():
    steps = stages()[-1][1]
    arguments = dict(rest.split("=") for word, rest in steps if word == "ARG")
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    assert arguments == {"VERSION": version, "REVISION": "unknown", "BUILDKIT_SBOM_SCAN_CONTEXT": "true"}
    (labels,) = [rest for word, rest in steps if word == "LABEL"]
    for name in ("VERSION", "REVISION"):
        assert f'org.opencontainers.image.{name.lower()}="${{{name}}}"' in labels


def test_the_binary_is_stripped():
    """Cargo reads the variables of the profile before it builds."""
    words = [word for word, _ in stages()[0][1]]
    (variables,) = [rest for word, rest in stages()[0][1] if word == "ENV"]
    assert "CARGO_PROFILE_RELEASE_STRIP=symbols" in variables.split()
    assert words.index("ENV") < words.index("RUN")


def test_the_c_library_of_the_builder_is_not_newer():
    """A binary needs the C library that it was built with, or a newer one."""
    debian = {"bookworm": 12, "trixie": 13}
    (builder, _), *_, (image, _) = stages()
    assert debian[builder_name(builder)[1]] <= int(re.search(r"cc-debian(\d+):", image)[1])


def builder_name(base):
    """Its version of Rust and its Debian."""
    return re.fullmatch(r"rust:(\d+\.\d+)-(\w+)@sha256:[0-9a-f]{64} AS build", base).groups()


def test_images_have_the_compiler_of_the_repository():
    channel = re.search(r'^channel = "(.+)"', (ROOT / "rust-toolchain.toml").read_text(), re.MULTILINE)[1]
    oldest = re.search(r'^rust-version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    version = builder_name(stages()[0][0])[0]
    assert channel.startswith(f"{version}.")
    assert [int(n) for n in version.split(".")] >= [int(n) for n in oldest.split(".")]


def test_an_image_is_built_for_its_own_platform():
    """Nothing is cross-compiled, and two platforms on one machine do not share their objects."""
    assert all("--platform" not in base for base, _ in stages())
    words = [word if word != "ARG" else f"ARG {rest}" for word, rest in stages()[0][1]]
    assert words.index("ARG TARGETARCH") < words.index("RUN")
    (run,) = [rest for word, rest in stages()[0][1] if word == "RUN"]
    assert "--mount=type=cache,id=weir-target-$TARGETARCH,target=/weir/target" in run
    # 2^16: the largest pages of Linux on arm64.
    assert 'if [ "$TARGETARCH" = arm64 ]; then export JEMALLOC_SYS_WITH_LG_PAGE=16; fi' in run


def test_the_binary_can_be_taken_from_the_build():
    base, steps = stages()[1]
    assert base == "scratch AS binary"
    assert steps == [("COPY", "--from=build /image/bin/weir /")]


def test_both_names_are_one_binary():
    (run,) = [rest for word, rest in stages()[0][1] if word == "RUN"]
    assert "cargo build --locked --release --bin weir" in run
    assert "install -D target/release/weir /image/bin/weir" in run and "ln -s weir /image/bin/ratelimit" in run


def test_the_build_context_equals_what_is_copied():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    lines = [line for line in lines if line and not line.startswith("#")]
    assert lines[0] == "*" and sorted(lines[1:]) == sorted(f"!{path}" for path in copied())


def test_cargo_finds_its_targets_in_what_is_copied(tmp_path):
    for path in copied():
        source, target = ROOT / path, tmp_path / path
        shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)
    run = subprocess.run(
        ["cargo", "metadata", "--locked", "--offline", "--no-deps", "--format-version=1"],
        cwd=tmp_path, capture_output=True, text=True,
    )
    assert run.returncode == 0, run.stderr
    packages = json.loads(run.stdout)["packages"]
    targets = [target for package in packages for target in package["targets"]]
    assert "weir" in [target["name"] for target in targets if "bin" in target["kind"]]
    for target in targets:
        if set(target["kind"]) & {"lib", "bin", "custom-build"}:
            assert Path(target["src_path"]).exists()


def test_the_build_reads_only_what_is_copied():
    """cargo lists every file that the build of the library read."""
    built = [(file.stat().st_mtime, text) for file in (WEIR.parent / "deps").glob("weir-*.d")
             if re.search(r"/libweir-\w+\.rlib: ", text := file.read_text())]
    read = re.search(r"^\S*/libweir-\w+\.rlib: (.*)$", max(built)[1], re.MULTILINE)
    files = [ROOT / name for name in read[1].split()]
    # The build script wrote the others.
    files = [file.relative_to(ROOT) for file in files if WEIR.parent not in file.parents]
    assert len(files) > 100
    assert {str(file) for file in files if file.parts[0] not in copied()} == set()
