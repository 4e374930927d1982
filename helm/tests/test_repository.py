"""What GitHub reads, and the scripts of a release: workflows call what exists, and versions agree."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from chart import CHART, ROOT

WORKFLOWS = {path.stem: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").iterdir()}
RELEASE = ROOT / ".ci" / "release"
VERSION = re.search(r'^version = "(.+)"$', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
DIGEST = "sha256:" + 64 * "0"


def steps():
    """Every step of every workflow: the name of the workflow, the step."""
    return [(name, step) for name, workflow in WORKFLOWS.items() for job in workflow["jobs"].values()
            for step in job.get("steps", [])]


def commands():
    return [(name, line.strip()) for name, step in steps() for line in step.get("run", "").splitlines()]


# git would use the repository of a hook that runs the tests.
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}


def run(*words, cwd=ROOT, **variables):
    return subprocess.run(words, capture_output=True, text=True, cwd=cwd, env={**ENVIRONMENT, **variables})


def documented_targets():
    """The targets of the Makefile with a comment for `make help`."""
    return re.findall(r"^([a-z0-9-]+):[^#\n]*## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_workflows_call_targets_and_scripts_that_exist():
    assert set(WORKFLOWS) == {"ci", "deny", "docs", "fuzz", "release"}
    targets = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    made = [(name, target) for name, line in commands() for target in re.findall(r"^make (?:-\S+ )*([\w-]+)", line)]
    assert {name for name, _ in made} >= {"deny", "docs", "fuzz"}
    assert {("ci", "test-valkey"), ("ci", "chart-testing")} <= set(made)
    assert [found for found in made if found[1] not in targets] == []
    scripts = {script for _, line in commands() for script in re.findall(r"(?:\.ci|helm/tests)/[\w./-]+", line)}
    assert {".ci/run", ".ci/release/image.sh", "helm/tests/install-helm.sh"} <= scripts
    assert [script for script in scripts if not os.access(ROOT / script, os.X_OK)] == []


def test_every_script_of_a_release_is_called():
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert [path.name for path in RELEASE.iterdir() if f".ci/release/{path.name}" not in text] == []


def test_every_action_has_a_commit_and_its_version():
    """A tag of an action may move. Dependabot renews the commit and the comment."""
    for path in (ROOT / ".github" / "workflows").iterdir():
        used = re.findall(r"uses: (.*)", path.read_text())
        assert used, path
        for action in used:
            if not action.startswith("./.github/workflows/"):
                assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", action), f"{path.name}: {action}"


def test_one_version_of_an_action():
    found = {}
    for _, step in steps():
        name, _, commit = step.get("uses", "").partition("@")
        found.setdefault(name, set()).add(commit)
    assert [name for name, commits in found.items() if len(commits) > 1] == []


def test_workflows_have_only_the_rights_they_need():
    """A right to write is one of a job, and only a release and the site have any."""
    for name, workflow in WORKFLOWS.items():
        assert workflow["permissions"] in ({}, {"contents": "read"}), name
        for job, body in workflow["jobs"].items():
            rights = body.get("permissions", {}).values()
            assert "write" not in rights or name in ("release", "docs"), f"{name}: {job}"
            assert "uses" in body or body["timeout-minutes"] <= 240, f"{name}: {job}"
    for name, step in steps():
        if "actions/checkout@" in step.get("uses", ""):
            assert step["with"]["persist-credentials"] is False, name


def test_no_expression_is_inside_of_a_script():
    """GitHub would insert its text, such as the name of a branch, as code."""
    assert [found for found in commands() if "${{" in found[1]] == []


def test_no_deployment_of_the_site_is_cancelled():
    site = WORKFLOWS["docs"]
    assert site["concurrency"]["cancel-in-progress"] == "${{ github.event_name == 'pull_request' }}"
    # What `make book` reads. PyYAML reads the key `on` as true.
    for path in site[True]["pull_request"]["paths"]:
        assert list(ROOT.glob(path.replace("**.md", "**/*.md"))), path
    assert {"book/**", "book.toml", "docs/**", "Makefile"} <= set(site[True]["pull_request"]["paths"])


def test_only_a_pushed_tag_publishes():
    """A run by hand may be on a tag too: `gh workflow run --ref v0.1.0`."""
    jobs = WORKFLOWS["release"]["jobs"]
    condition = "github.event_name == 'push' && github.ref_type == 'tag'"
    publishing = {name: job for name, job in jobs.items() if "write" in job.get("permissions", {}).values()}
    assert list(publishing) == ["build", "image", "chart", "release"]
    for name, job in publishing.items():
        # Of `build`, only the last two steps: the push, and the digest of what was pushed.
        conditions = [step.get("if") for step in job["steps"]]
        if name == "build":
            assert conditions == [None] * (len(conditions) - 2) + [condition] * 2
            assert ["push=true" in step.get("run", "") for step in job["steps"]][-2:] == [True, False]
        else:
            assert job["if"] == condition and conditions == [None] * len(conditions)
    # The checks of ci.yml ran on the tag before anything is pushed.
    assert "checks" in jobs["build"]["needs"] and jobs["checks"]["uses"] == "./.github/workflows/ci.yml"
    assert "build" in jobs["image"]["needs"]
    assert "image" in jobs["chart"]["needs"] and "chart" in jobs["release"]["needs"]


def test_an_attestation_in_the_registry_has_its_rights():
    """By default, the action also records where the image is stored. That needs the last right."""
    rights = [job["permissions"] for workflow in WORKFLOWS.values() for job in workflow["jobs"].values()
              for step in job.get("steps", []) if step.get("with", {}).get("push-to-registry")]
    names = ("packages", "id-token", "attestations", "artifact-metadata")
    assert rights == [{name: "write" for name in names}]


def test_the_names_in_the_workflow_are_those_of_the_pages():
    names = WORKFLOWS["release"]["env"]
    page = (ROOT / "SECURITY.md").read_text()
    image = yaml.safe_load((CHART / "values.yaml").read_text())["image"]
    assert f"{image['registry']}/{image['repository']}" == names["IMAGE"] == "ghcr.io/weir-rs/weir"
    for name in (names["IMAGE"], f"{names['CHARTS']}/weir"):
        assert f"cosign verify {name}:{VERSION} \\\n" in page
    identity = f"https://github.com/weir-rs/weir/.github/workflows/release.yml@refs/tags/v{VERSION}"
    assert page.count(f"--certificate-identity {identity} ") == page.count("cosign verify ") == 2
    assert f"gh attestation verify weir-{VERSION}-linux-amd64.tar.gz --repo weir-rs/weir\n" in page
    assert f"gh attestation verify oci://{names['IMAGE']}:{VERSION} --repo weir-rs/weir\n" in page


# The file that makes a folder one of an ecosystem. A crate of the workspace has no lock file.
MANIFESTS = {"Cargo.lock": "cargo", "go.mod": "gomod", "package.json": "npm", "requirements.txt": "pip",
             "pom.xml": "maven", "Dockerfile": "docker"}


def test_dependabot_renews_every_folder_with_packages():
    configured = {("github-actions", "/")}
    for update in yaml.safe_load((ROOT / ".github" / "dependabot.yml").read_text())["updates"]:
        folders = update.get("directories") or [update["directory"]]
        configured |= {(update["package-ecosystem"], folder) for folder in folders}
    files = run("git", "ls-files", "--cached", "--others", "--exclude-standard").stdout.splitlines()
    found = {("github-actions", "/")}
    for folder, _, name in (file.rpartition("/") for file in files):
        if name in MANIFESTS:
            found.add((MANIFESTS[name], f"/{folder}"))
    assert len(found) >= 7
    assert configured == found


def test_all_files_have_the_version():
    printed = run(RELEASE / "version.sh")
    assert (printed.stdout, printed.stderr) == (f"{VERSION}\n", "")
    # The others are compared as text, because they have it inside of a line.
    assert f'name = "weir"\nversion = "{VERSION}"\n' in (ROOT / "Cargo.lock").read_text()
    assert f"ghcr.io/weir-rs/weir:{VERSION}\n" in (CHART / "Chart.yaml").read_text()


@pytest.fixture
def tree(tmp_path):
    """A copy of what the scripts of a release read, committed, with a dated version."""
    names = ("Cargo.toml", "Dockerfile", "CITATION.cff", "CHANGELOG.md", "README.md", "LICENSE", "helm/weir/Chart.yaml")
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    shutil.copytree(RELEASE, tmp_path / ".ci" / "release")
    changelog = tmp_path / "CHANGELOG.md"
    heading = re.compile(rf"^## \[{VERSION}\] - .*", re.MULTILINE)
    changelog.write_text(heading.sub(f"## [{VERSION}] - 2026-01-02", changelog.read_text()))
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false")
    for words in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "all")):
        made = run(*git, *words, cwd=tmp_path, GIT_COMMITTER_DATE="2026-01-02T03:04:05Z")
        assert made.returncode == 0, made.stderr
    return tmp_path


def test_a_tag_of_the_version_is_accepted(tree):
    tagged = run(tree / ".ci/release/version.sh", f"v{VERSION}")
    assert (tagged.stdout, tagged.stderr) == (f"{VERSION}\n", "")


@pytest.mark.parametrize("file, old, new, tag, error", [
    ("README.md", "", "", "v9.9.9", "the tag is v9.9.9"),
    ("README.md", "", "", VERSION, f"tag v{VERSION}"),
    ("Cargo.toml", f'\nversion = "{VERSION}"', '\nversion = "9.9.9"', "v9.9.9", "no line `ARG VERSION=9.9.9`"),
    ("Dockerfile", f"ARG VERSION={VERSION}", "ARG VERSION=9.9.9", None, "Dockerfile: no line"),
    ("CITATION.cff", f"version: {VERSION}", "version: 9.9.9", None, "CITATION.cff: no line"),
    ("helm/weir/Chart.yaml", f"\nversion: {VERSION}", "\nversion: 9.9.9", None, "Chart.yaml: no line `version:"),
    ("helm/weir/Chart.yaml", "appVersion: ", "appVersion: 9.", None, "Chart.yaml: no line `appVersion:"),
    ("CHANGELOG.md", f"## [{VERSION}] - 2026-01-02", "## [9.9.9] - 2026-01-02", None, "CHANGELOG.md: no line"),
    ("CHANGELOG.md", "- 2026-01-02", "- not released", f"v{VERSION}", "has no date"),
])
def test_a_version_that_differs_is_refused(tree, file, old, new, tag, error):
    text = (tree / file).read_text()
    assert old in text
    (tree / file).write_text(text.replace(old, new, 1))
    refused = run(tree / ".ci/release/version.sh", *([tag] if tag else []))
    assert refused.returncode != 0 and refused.stdout == ""
    assert error in refused.stderr


def test_the_notes_are_the_section_of_the_version(tree):
    notes = run(tree / ".ci/release/notes.sh", VERSION, DIGEST, "sha256:chart")
    assert notes.returncode == 0, notes.stderr
    assert "### Rules and algorithms\n" in notes.stdout
    assert "## [" not in notes.stdout and "Nothing yet." not in notes.stdout
    # The page of a release is outside of the tree.
    links = re.findall(r"\]\(([^)]*)\)", notes.stdout)
    assert len(links) > 20 and [link for link in links if not link.startswith("https://")] == []
    assert f"/blob/v{VERSION}/docs/reference/algorithms.md" in notes.stdout
    for name in (f"weir-rs/weir:{VERSION}@{DIGEST}", "sha256:chart", "`rust:1", "`gcr.io/distroless/cc-debian"):
        assert name in notes.stdout
    missing = run(tree / ".ci/release/notes.sh", "9.9.9", DIGEST, DIGEST)
    assert missing.returncode != 0 and "no text about 9.9.9" in missing.stderr


def test_the_image_has_time_commit_and_base(tree):
    """image.sh, with a docker that prints its arguments."""
    program(tree / "bin" / "docker", 'printf "%s\\n" "$@"')
    built = run(tree / ".ci/release/image.sh", "arm64", "--load", PATH=f"{tree}/bin:{os.environ['PATH']}")
    assert built.returncode == 0, built.stderr
    words = built.stdout.splitlines()
    commit = run("git", "rev-parse", "HEAD", cwd=tree).stdout.strip()
    base = re.findall(r"^FROM (\S+)@(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert len(base) == 1
    assert words[:4] == ["buildx", "build", "--platform", "linux/arm64"]
    assert words[-2:] == ["--load", "."]
    assert [word for before, word in zip(words, words[1:]) if before in ("--build-arg", "--label")] == [
        f"VERSION={VERSION}", f"REVISION={commit}", "SOURCE_DATE_EPOCH=1767323045",
        "org.opencontainers.image.created=2026-01-02T03:04:05Z",
        f"org.opencontainers.image.base.name={base[0][0]}", f"org.opencontainers.image.base.digest={base[0][1]}",
    ]


def program(path, text):
    """A program of the shell."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o700)


def test_the_same_binary_gives_the_same_archive(tree, tmp_path):
    weir = tree / "bin" / "weir"
    program(weir, 'case $1 in completions) echo "for $2" ;; man) mkdir "$2" && echo page > "$2/weir.1" ;; esac')
    packed = []
    for folder in ("first", "second"):
        made = run(tree / ".ci/release/archive.sh", weir, "amd64", tree / folder)
        assert made.returncode == 0, made.stderr
        path = tree / folder / f"weir-{VERSION}-linux-amd64.tar.gz"
        assert made.stdout == f"{path}\n"
        packed.append(path.read_bytes())
        # Other times and rights of the files that it reads.
        os.utime(tree / "README.md", (0, 0))
        weir.chmod(0o755)
    assert packed[0] == packed[1]
    top = f"weir-{VERSION}-linux-amd64"
    with tarfile.open(path) as archive:
        members = archive.getmembers()
        assert archive.extractfile(f"{top}/completions/weir.zsh").read() == b"for zsh\n"
    shells = ("bash", "elvish", "fish", "powershell", "zsh")
    assert [member.name.removeprefix(top) for member in members if member.isfile()] == [
        "/CHANGELOG.md", "/LICENSE", "/README.md", *(f"/completions/weir.{shell}" for shell in shells),
        "/man/weir.1", "/weir",
    ]
    assert {(member.uid, member.gid, member.mtime) for member in members} == {(0, 0, 1767323045)}
    assert {member.name: member.mode for member in members}[f"{top}/weir"] == 0o755


def test_programs_of_the_environment_start():
    """Their first line has the path of the environment, so it must not be moved."""
    scripts = [path for path in (Path(sys.prefix) / "bin").iterdir() if path.read_bytes()[:3] == b"#!/"]
    assert {"check-jsonschema", "yamale"} <= {path.name for path in scripts}
    interpreters = {path.read_text().partition("\n")[0].removeprefix("#!") for path in scripts}
    assert [name for name in interpreters if not os.access(name.split()[0], os.X_OK)] == []


def test_every_documented_target_is_in_one_group_of_help():
    shown = run("make", "--no-print-directory", "help")
    assert shown.returncode == 0, shown.stderr
    listed = re.findall(r"^  ([a-z0-9-]+) ", shown.stdout, re.MULTILINE)
    assert len(listed) > 30 and sorted(listed) == sorted(documented_targets())


def test_people_find_the_files_of_a_public_project():
    for name in ("README.md", "LICENSE", "CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "SECURITY.md", "CHANGELOG.md",
                 "CITATION.cff", ".github/CODEOWNERS", ".github/pull_request_template.md"):
        assert (ROOT / name).read_text().strip(), name
    # Private reports have one address.
    form = "https://github.com/weir-rs/weir/security/advisories/new"
    for name in ("SECURITY.md", "CODE_OF_CONDUCT.md", ".github/ISSUE_TEMPLATE/config.yml"):
        assert form in (ROOT / name).read_text(), name
