"""Every object of every values file in ci/ is valid for Kubernetes, and its settings are valid for weir."""

import subprocess
from pathlib import Path

import jsonschema
import kubernetes_validate
import pytest
import yaml

import custom
from chart import CASES, CHART, NEWEST, OLDEST, ROOT, WEIR, WITH_PODS, every, helm, one, pods, render


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("case", CASES)
def test_every_object_is_valid(case, version):
    objects = render(case, version=version)
    kinds = {found["kind"] for found in objects}
    assert "ConfigMap" in kinds and ("Service" in kinds and kinds & {"Deployment", "DaemonSet"} or case not in WITH_PODS)
    for found in objects:
        if schema := custom.schema(found):
            jsonschema.validate(found, schema)
        else:
            kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("case", CASES)
def test_objects_have_different_names(case):
    names = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in render(case)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("case", CASES)
def test_helm_lint_finds_nothing(case):
    values = CHART / "ci" / f"{case}-values.yaml"
    run = helm("lint", CHART, "--strict", "--values", values)
    assert run.returncode == 0, run.stdout + run.stderr


def texts(section):
    """The settings of a section and of those within it that are texts. Lists are folders."""
    for value in section.values():
        if isinstance(value, dict):
            yield from texts(value)
        elif isinstance(value, str):
            yield value


@pytest.mark.parametrize("case", CASES)
def test_weir_check_accepts_the_settings_and_the_rules(case, tmp_path):
    """The same command as in the init container, by the real binary, with files in the place of the mounts."""
    settings = one("ConfigMap", case)["data"]["weir.yaml"]
    for mount in ("/etc/weir/", "/xds/"):
        settings = settings.replace(mount, f"{tmp_path}/")
    (tmp_path / "weir.yaml").write_text(settings)
    for value in texts(yaml.safe_load(settings)):
        if value.startswith(f"{tmp_path}/"):
            Path(value).parent.mkdir(exist_ok=True)
            # A certificate and its key. The first line serves as a password.
            Path(value).write_bytes((ROOT / "fuzz" / "tls" / "server.pem").read_bytes())
    rules = tmp_path / "rules"
    rules.mkdir()
    for found in every("ConfigMap", case):
        if found["metadata"]["name"].endswith("-rules"):
            for name, text in found["data"].items():
                (rules / name).write_text(text)
    command = [WEIR, "check", "--config", tmp_path / "weir.yaml", rules]
    run = subprocess.run(command, capture_output=True, text=True, env={})
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("case", WITH_PODS)
def test_weir_has_every_flag_that_the_chart_passes(case):
    specs = [found["spec"] for found in pods(case)]
    containers = [c for spec in specs for c in spec.get("initContainers", []) + spec["containers"]]
    seen = 0
    for command, *flags in (c["args"] for c in containers if c.get("command") == ["/bin/weir"]):
        page = subprocess.run([WEIR, command, "--help"], capture_output=True, text=True).stdout
        for flag in flags:
            if flag.startswith("--"):
                seen += 1
                assert f"{flag.split('=')[0]} " in page, f"weir {command} has no {flag}"
    assert seen >= 2


def test_every_custom_kind_is_rendered_by_some_case():
    rendered = {(o["apiVersion"], o["kind"]) for case in CASES for o in render(case)}
    assert set(custom.SPECS) <= rendered


@pytest.mark.parametrize("case", ["observed", "keda", "mtls"])
def test_a_misspelt_field_of_a_custom_object_is_rejected(case):
    """The schemas of custom.py reject unknown fields."""
    for found in render(case):
        if schema := custom.schema(found):
            with pytest.raises(jsonschema.ValidationError, match="endpoint_"):
                jsonschema.validate({**found, "spec": {**found["spec"], "endpoint_": []}}, schema)
