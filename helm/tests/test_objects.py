"""Every object of every values file in ci/ is one that Kubernetes takes."""

import jsonschema
import kubernetes_validate
import pytest

import custom
from chart import CASES, CHART, NEWEST, OLDEST, helm, render


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("case", CASES)
def test_every_object_is_valid(case, version):
    objects = render(case, version=version)
    assert {"Deployment", "Service", "ConfigMap"} <= {found["kind"] for found in objects}
    for found in objects:
        if schema := custom.schema(found):
            jsonschema.validate(found, schema)
        else:
            kubernetes_validate.validate(found, version, strict=True)


@pytest.mark.parametrize("case", CASES)
def test_no_two_objects_are_one(case):
    names = [(o["kind"], o["metadata"].get("namespace"), o["metadata"]["name"]) for o in render(case)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("case", CASES)
def test_helm_lint_finds_nothing(case):
    values = CHART / "ci" / f"{case}-values.yaml"
    run = helm("lint", CHART, "--strict", "--values", values)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_custom_kind_is_rendered_by_some_case():
    rendered = {(o["apiVersion"], o["kind"]) for case in CASES for o in render(case)}
    assert set(custom.SPECS) <= rendered


@pytest.mark.parametrize("case", ["observed", "keda", "mtls"])
def test_a_misspelt_field_of_a_custom_object_is_noticed(case):
    """The schemas of custom.py refuse what they do not know."""
    for found in render(case):
        if schema := custom.schema(found):
            with pytest.raises(jsonschema.ValidationError, match="endpoint_"):
                jsonschema.validate({**found, "spec": {**found["spec"], "endpoint_": []}}, schema)
