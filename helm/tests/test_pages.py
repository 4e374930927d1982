"""The pages for people: their helm commands render, their values are accepted, and their lists are complete."""

import re
import shlex

import pytest
import yaml

from chart import CHART, NEWEST, ROOT, helm

NAMES = ("operate/helm", "operate/upgrading", "start/istio", "start/envoy-gateway", "start/kind")
PAGES = [ROOT / "docs" / f"{name}.md" for name in NAMES] + [CHART / "README.md"]
# Flags that `helm template` does not have.
ONLY_WITH_A_CLUSTER = ("--install", "--create-namespace", "--reset-then-reuse-values")


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def commands(program):
    """Every command of the pages that begins with this word: page, words."""
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.splitlines():
                words = shlex.split(line, comments=True)
                if words[:1] == [program]:
                    yield page, words


def renderings():
    for page, words in commands("helm"):
        if "helm/weir" in words:
            yield pytest.param(words, id=f"{page.name}: {' '.join(words[:4])}")


@pytest.mark.parametrize("words", list(renderings()))
def test_every_helm_command_of_a_page_renders(words):
    assert words[1] in ("install", "upgrade", "template")
    words = [word for word in words[2:] if word not in ONLY_WITH_A_CLUSTER]
    # An upgrade keeps the values of the first installation; these settings need no others.
    run = helm("template", *words, "--kube-version", NEWEST)
    assert run.returncode == 0, run.stderr


def test_every_other_helm_command_is_known():
    """Commands that need a cluster or a registry, and those that test_sidecar.py runs."""
    known = (["test", "weir"], ["uninstall", "weir"], ["rollback", "weir"], ["dependency", "update"], ["template", "shop"])
    for _, words in commands("helm"):
        if "helm/weir" not in words:
            assert words[1:3] in known or "oci://" in " ".join(words), words


def test_the_chart_comes_from_one_registry():
    places = {word for _, words in commands("helm") for word in words if word.startswith("oci://ghcr.io/")}
    assert places == {"oci://ghcr.io/weir-rs/charts/weir"}


def test_kubectl_and_docker_commands_name_what_exists():
    for page, words in commands("kubectl"):
        for flag, name in zip(words, words[1:]):
            if flag == "-f":
                assert list(yaml.safe_load_all((ROOT / name).read_text())), f"{page.name}: {name}"
    pushed = {words[2] for _, words in commands("docker") if words[1] == "push"}
    loaded = {words[3] for _, words in commands("kind") if words[1:3] == ["load", "docker-image"]}
    built = {words[words.index("-t") + 1] for _, words in commands("docker") if words[1] == "build"}
    assert pushed == {"registry.example.com/weir:0.1.0"} and loaded == {"weir:0.1.0"}
    assert built == pushed | loaded
    assert all((ROOT / words[-1] / "Dockerfile").exists() for _, words in commands("docker") if words[1] == "build")


def blocks_of_values():
    """Every block of helm.md, and the blocks with values of pages for all installations."""
    yield from blocks(PAGES[0], "yaml")
    others = (("guides/plans", "settings:"), ("operate/memory", "podSecurityContext:"), ("operate/tracing", "extraEnv:"))
    for name, start in others:
        (block,) = (block for block in blocks(ROOT / "docs" / f"{name}.md", "yaml") if block.startswith(start))
        yield block


@pytest.mark.parametrize("block", list(blocks_of_values()), ids=lambda block: block.split(":")[0])
def test_the_values_of_a_page_are_accepted(block, tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text(block)
    run = helm("template", "weir", "helm/weir", "--kube-version", NEWEST, "--values", values)
    assert run.returncode == 0, run.stderr


def test_every_file_that_a_page_applies_exists():
    for page in PAGES:
        for name in re.findall(r"(?:-f|apply -f) (examples/\S+|helm/\S+)", page.read_text()):
            assert list(yaml.safe_load_all((ROOT / name).read_text())), name


def alerts():
    groups = yaml.safe_load((CHART / "files" / "alerts.yaml").read_text())["groups"]
    return {rule["alert"]: rule["labels"]["severity"] for group in groups for rule in group["rules"]}


def test_the_page_lists_every_critical_alert():
    _, section = PAGES[0].read_text().split("severity `critical` should page:\n")
    listed = re.findall(r"`(Weir\w+)`", section.split("\n\n[")[0])
    assert sorted(listed) == sorted(name for name, severity in alerts().items() if severity == "critical")


def test_every_alert_has_a_section_with_its_severity():
    page = (ROOT / "docs" / "operate" / "alerts.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n\n(\w+): ", page, re.MULTILINE))
    assert sections == alerts()
