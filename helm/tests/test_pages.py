"""The pages for people: their helm commands render, and their values are accepted."""

import re
import shlex

import pytest
import yaml

from chart import NEWEST, ROOT, helm

PAGES = [ROOT / "docs" / f"{name}.md" for name in ("helm", "istio", "envoy-gateway")]


def blocks(page, language):
    return re.findall(rf"```{language}\n(.*?)```", page.read_text(), re.DOTALL)


def installs():
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in block.splitlines():
                if line.startswith("helm ") and " helm/weir " in line:
                    yield pytest.param(line, id=f"{page.name}: {line[:40]}")


@pytest.mark.parametrize("line", list(installs()))
def test_every_helm_install_of_a_page_renders(line):
    words = [word for word in shlex.split(line)[2:] if word not in ("--install", "--create-namespace")]
    run = helm("template", *words, "--kube-version", NEWEST)
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize("block", blocks(PAGES[0], "yaml"), ids=lambda block: block.split(":")[0])
def test_the_values_of_the_page_are_accepted(block, tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text(block)
    run = helm("template", "weir", "helm/weir", "--kube-version", NEWEST, "--values", values)
    assert run.returncode == 0, run.stderr


def test_every_file_that_a_page_applies_exists():
    for page in PAGES:
        for name in re.findall(r"(?:-f|apply -f) (examples/\S+)", page.read_text()):
            assert list(yaml.safe_load_all((ROOT / name).read_text())), name
