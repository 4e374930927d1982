"""Chart.yaml: its form, the annotations of Artifact Hub, and a new version for each change after a release.

`make chart-testing` runs chart-testing (ct), which also has Helm's schema of the file.
"""

import re
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest
import yaml

from chart import CHART, ROOT, one, pods
from custom import TEXT, TEXTS, closed, listed

FILE = yaml.safe_load((CHART / "Chart.yaml").read_text())
URL = {"type": "string", "pattern": "^https://[^ ]+$"}
SEMVER = {"type": "string", "pattern": r"^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?$"}
MAINTAINER = closed({"name", "url"}, name=TEXT, url=URL, email=TEXT)
BOOLEAN = {"enum": ["true", "false"]}
LINK = closed({"name", "url"}, name=TEXT, url=URL)

# https://artifacthub.io/docs/topics/annotations/helm; the annotations whose values are YAML, and the others.
IN_YAML = {
    "links": listed(LINK),
    "images": listed(closed({"name", "image"}, name=TEXT, image={"type": "string", "pattern": "^[^ :@]+(:[0-9]+)?/[^ ]+:[^ ]+$"})),
    "screenshots": listed(closed({"title", "url"}, title=TEXT, url=URL)),
    "recommendations": listed(closed({"url"}, url={"type": "string", "pattern": "^https://artifacthub.io/packages/helm/[a-z-]+/[a-z-]+$"})),
    "changes": listed(closed(
        {"kind", "description"}, description=TEXT, links=listed(LINK),
        kind={"enum": ["added", "changed", "deprecated", "removed", "fixed", "security"]},
    )),
}
PLAIN = {
    "license": {"const": "Apache-2.0"}, "prerelease": BOOLEAN, "containsSecurityUpdates": BOOLEAN, "operator": BOOLEAN,
    "category": {"enum": ["ai-machine-learning", "database", "integration-delivery", "monitoring-logging", "networking",
                          "security", "storage", "streaming-messaging", "skip-prediction"]},
}


def annotation(name):
    return yaml.safe_load(FILE["annotations"][f"artifacthub.io/{name}"])


def test_the_file_has_all_that_a_reader_looks_for():
    jsonschema.validate(FILE, closed(
        {"apiVersion", "name", "description", "type", "version", "appVersion", "kubeVersion", "home", "icon", "sources",
         "maintainers", "keywords", "annotations"},
        apiVersion={"const": "v2"}, name={"const": "weir"}, description=TEXT, type={"const": "application"},
        version=SEMVER, appVersion=SEMVER, kubeVersion=TEXT, home=URL, icon=URL, sources=listed(URL),
        maintainers=listed(MAINTAINER), keywords=TEXTS, annotations={"type": "object", "additionalProperties": TEXT},
    ))


def test_the_annotations_are_those_of_artifact_hub():
    assert set(FILE["annotations"]) == {f"artifacthub.io/{name}" for name in [*IN_YAML, *PLAIN]}
    for name, schema in IN_YAML.items():
        jsonschema.validate(annotation(name), schema)
    for name, schema in PLAIN.items():
        jsonschema.validate(FILE["annotations"][f"artifacthub.io/{name}"], schema)


def test_the_annotations_are_true():
    images = {c["image"] for pod in pods("trial-redis") for c in pod["spec"]["containers"]}
    assert {image["image"] for image in annotation("images")} == images
    assert (FILE["annotations"]["artifacthub.io/prerelease"] == "true") == ("-" in FILE["version"])
    kinds = {change["kind"] for change in annotation("changes")}
    assert (FILE["annotations"]["artifacthub.io/containsSecurityUpdates"] == "true") == ("security" in kinds)
    assert not (CHART / "crds").exists() and one("Deployment")


def test_the_addresses_lead_to_files():
    addresses = [FILE["icon"], *(link["url"] for link in annotation("links"))]
    addresses += [picture["url"] for picture in annotation("screenshots")]
    here = [address.split("/main/")[1] for address in addresses if "/main/" in address]
    assert len(here) >= 8
    for path in here:
        assert (ROOT / path).exists(), path


@pytest.mark.parametrize("path", ["Chart.yaml", "values.yaml", "ci"])
def test_yamllint_finds_nothing(path):
    command = [sys.executable, "-m", "yamllint", "--strict", "-c", ROOT / "helm" / "lintconf.yaml", CHART / path]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def git(folder, *words):
    return subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True)


def released(folder):
    """The newest release that this state has as an ancestor, or none."""
    run = git(folder, "describe", "--tags", "--abbrev=0", "--match", "v[0-9]*")
    return run.stdout.strip() if run.returncode == 0 else None


def changed_without_a_new_version(folder):
    """True if the chart differs from that of the newest release, but has its version."""
    release = released(folder)
    if release is None or not git(folder, "diff", "--name-only", release, "--", "helm/weir").stdout:
        return False
    before = yaml.safe_load(git(folder, "show", f"{release}:helm/weir/Chart.yaml").stdout)
    return before["version"] == yaml.safe_load((Path(folder) / "helm/weir/Chart.yaml").read_text())["version"]


def test_a_changed_chart_has_a_new_version():
    assert not changed_without_a_new_version(ROOT), "raise `version` in helm/weir/Chart.yaml, and write `changes`"


def test_a_forgotten_version_is_found(tmp_path):
    chart = tmp_path / "helm" / "weir"
    chart.mkdir(parents=True)

    def commit(version, text):
        (chart / "Chart.yaml").write_text(f"version: {version}\n")
        (chart / "values.yaml").write_text(text)
        user = ["-c", "user.name=a", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false"]
        assert git(tmp_path, "add", ".").returncode == 0
        assert git(tmp_path, *user, "commit", "--allow-empty", "-m", "a").returncode == 0
        return user

    assert git(tmp_path, "init").returncode == 0
    user = commit("0.1.0", "a: 1")
    assert not changed_without_a_new_version(tmp_path), "no release"
    assert git(tmp_path, *user, "tag", "-a", "v0.1.0", "-m", "a").returncode == 0
    assert not changed_without_a_new_version(tmp_path)
    commit("0.1.0", "a: 2")
    assert changed_without_a_new_version(tmp_path)
    commit("0.1.1", "a: 2")
    assert not changed_without_a_new_version(tmp_path)


def test_the_changelog_has_the_version():
    """Or a part for what is not released."""
    headings = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert "Unreleased" in headings or FILE["version"] in headings
