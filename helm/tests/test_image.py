"""The Dockerfile, without a container engine: its instructions, and that all copied files exist."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from chart import ROOT, WEIR

TEXT = (ROOT / "Dockerfile").read_text()


def instructions():
    """Each instruction with its words, joined over continued lines."""
    lines = [line for line in TEXT.splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [line.split(maxsplit=1) for line in joined.splitlines() if line.strip()]


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


def test_hadolint_finds_nothing():
    tool = Path(sys.executable).with_name("hadolint")
    run = subprocess.run([tool, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_the_last_stage_has_no_shell_and_runs_without_root():
    base, steps = stages()[-1]
    assert re.fullmatch(r"gcr\.io/distroless/cc-debian12:nonroot(@sha256:[0-9a-f]{64})?", base)
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
    assert arguments == {"VERSION": version, "REVISION": "unknown"}
    (labels,) = [rest for word, rest in steps if word == "LABEL"]
    for name in arguments:
        assert f'org.opencontainers.image.{name.lower()}="${{{name}}}"' in labels


def test_the_binary_is_stripped():
    """Cargo reads the variables of the profile before it builds."""
    words = [word for word, _ in stages()[0][1]]
    (variables,) = [rest for word, rest in stages()[0][1] if word == "ENV"]
    assert "CARGO_PROFILE_RELEASE_STRIP=symbols" in variables.split()
    assert words.index("ENV") < words.index("RUN")


def test_the_builder_has_the_c_library_of_the_image():
    """distroless debian12 is bookworm; a newer builder makes a binary that does not start there."""
    base, _ = stages()[0]
    rust = re.fullmatch(r"rust:(\d+\.\d+)-bookworm(@sha256:[0-9a-f]{64})? AS build", base)
    wanted = re.search(r'^rust-version = "(\d+)\.(\d+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)
    assert [int(n) for n in rust[1].split(".")] >= [int(n) for n in wanted.groups()]


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
