"""Values: misspelt and contradictory ones are rejected by name, and all are documented."""

import json
import math
import re
import subprocess
import sys

import pytest

from chart import CHART, ROOT, container, refused, render

SCHEMA = json.loads((CHART / "values.schema.json").read_text())


@pytest.mark.parametrize(("value", "name"), [
    ("replicacount=2", "replicacount"),
    ("image.repositry=\"x\"", "repositry"),
    ("redis.tls.enable=true", "enable"),
    ("settings.grpc.lisen=\":1\"", "lisen"),
    ("settings.gprc={}", "gprc"),
    ("metrics.serviceMonitor.enable=true", "enable"),
    ("service.headless.enable=false", "enable"),
    ("resources.request={}", "request"),
    ("readinessProbe.path=\"/\"", "path"),
])
def test_a_misspelt_value_is_refused_by_name(value, name):
    error = refused(value)
    assert re.search(rf"\b{name}\b", error) and "not allowed" in error, error


@pytest.mark.parametrize(("value", "place"), [
    ("replicaCount=\"two\"", "replicaCount"),
    ("store=\"memcached\"", "store"),
    ("redis.hosts=[\"redis\"]", "redis.hosts"),
    ("image.digest=\"sha256:12\"", "image.digest"),
    ("settings.drain={\"delay\":\"soon\"}", "settings.drain.delay"),
    ("rules={\"limits.txt\":\"\"}", "limits.txt"),
    ("service.ports.grpc=0", "service.ports.grpc"),
    ("service.type=\"ExternalName\"", "service.type"),
])
def test_a_value_of_another_kind_is_refused_by_name(value, place):
    assert place in refused(value)


@pytest.mark.parametrize("setting", [
    "grpc.listen", "http.listen", "admin.listen", "rules.paths", "rules.overlay_paths", "store.kind", "redis.url",
    "redis.password_file", "clock.offset",
])
def test_derived_settings_cannot_be_set(setting):
    section, key = setting.split(".")
    assert "not allowed" in refused(f'settings={{"{section}":{{"{key}":"x"}}}}')


@pytest.mark.parametrize(("sets", "words"), [
    (["autoscaling.enabled=true", "keda.enabled=true", "keda.triggers=[{}]"], "choose one"),
    (["keda.enabled=true"], "keda.triggers"),
    (["rules={\"a.yaml\":\"domain: a\"}", "existingRulesConfigMap=\"b\""], "rules come from one of them"),
    (["podDisruptionBudget.minAvailable=1", "podDisruptionBudget.maxUnavailable=1"], "exclude one another"),
    (["tls.enabled=true"], "tls.existingSecret"),
    (["tls.enabled=true", "tls.existingSecret=\"a\"", "tls.certManager.enabled=true"], "one of them"),
    (["tls.enabled=true", "tls.certManager.enabled=true"], "tls.certManager.issuerRef.name"),
    (["tls.existingSecret=\"a\""], "tls.enabled"),
    (["tls.clientCA.existingSecret=\"a\""], "tls.enabled"),
    (["store=\"redis\""], "redis.hosts"),
    (["store=\"redis\"", "redis.existingSecret.urlKey=\"url\""], "redis.existingSecret.name"),
    (["store=\"redis\"", "redis.hosts=[\"a:1\",\"b:2\"]"], "redis.topology"),
    (["store=\"redis\"", "redis.hosts=[\"a:1\"]", "redis.topology=\"sentinel\""], "redis.sentinelPrimary"),
    (["metrics.enabled=false", "metrics.podMonitor.enabled=true"], "metrics.podMonitor.enabled"),
    (["metrics.serviceMonitor.enabled=true", "metrics.podMonitor.enabled=true"], "choose one"),
    (["service.nodePorts.grpc=30081"], "service.nodePorts.grpc"),
    (['resources.limits={"memory":"512Mi"}'], "resources.limits.memory: 512Mi is less than the 2769Mi"),
    (['resources.limits={"memory":"1.2Gi"}'], "2769Mi"),
    (['resources.limits={"memory":1000000000}'], "2769Mi"),
    (['resources.limits={"memory":"2Gi"}', "settings.grpc.max_client_memory=4294967296"], "4294967296 bytes"),
    (['resources.limits={"memory":"2Gi"}', "settings.store.max_counters=20000000"], "20000000 counters"),
    (['resources.limits={"memory":"2Gi"}', "settings.rlqs.max_buckets=200000"], "200000 RLQS buckets"),
])
def test_values_that_contradict_one_another_are_refused(sets, words):
    assert words in refused(*sets)


@pytest.mark.parametrize(("sets", "limit"), [
    ([], "2769Mi"),
    (["settings.grpc.max_client_memory=134217728", "settings.store.max_counters=500000"], "1323Mi"),
    (['settings.grpc.max_client_memory="134217728"', "settings.store.max_counters=500000"], "1323Mi"),
    ([
        "settings.grpc.max_client_memory=134217728",
        "settings.store.max_counters=500000",
        "settings.http.max_connections=128",
    ], "987Mi"),
    ([
        "settings.grpc.max_client_memory=134217728",
        "settings.store.max_counters=500000",
        "settings.http.max_connections=128",
        "settings.rlqs.max_buckets=2000",
    ], "616Mi"),
    (["settings.rlqs.enabled=false"], "2379Mi"),
    (["settings.http.max_head_bytes=65536"], "2949Mi"),
    (["settings.http.max_body_bytes=1048576"], "2829Mi"),
    (["settings.admin.max_connections=128"], "2817Mi"),
    (["settings.grpc.max_connections=1024"], "2337Mi"),
    (["settings.store.max_counters=1000000000"], "154747Mi"),
    (['resources.limits={"memory":"2769Mi"}'], "2769Mi"),
    (['resources.limits={"memory":"3Gi"}'], "3Gi"),
    (['resources.limits={"memory":"3G"}'], "3G"),
    (['resources.limits={"memory":"3e9"}'], "3e9"),
    (['resources.limits={"cpu":"2"}'], "2769Mi"),
    (["resources.limits=null"], "2769Mi"),
])
def test_the_memory_limit_fits_the_settings(sets, limit):
    assert container("default", *sets)["resources"]["limits"]["memory"] == limit


HTTP_LIMITS = ["max_connections", "max_head_bytes", "max_body_bytes"]


def test_the_memory_limit_assumes_the_defaults_of_weir():
    settings = json.loads((ROOT / "docs" / "reference" / "settings.schema.json").read_text())["properties"]
    clients = settings["grpc"]["properties"]["max_client_memory"]["default"]
    counters = settings["store"]["properties"]["max_counters"]["default"]
    buckets = settings["rlqs"]["properties"]["max_buckets"]["default"]
    http = [settings["http"]["properties"][name]["default"] for name in HTTP_LIMITS]
    admin = settings["admin"]["properties"]["max_connections"]["default"]
    template = (CHART / "templates" / "_memory.tpl").read_text()
    grpc = settings["grpc"]["properties"]["max_connections"]["default"]
    assert all(f"| default {number} |" in template for number in [clients, grpc, counters, buckets, admin, *http])
    connections, head, body = map(int, http)
    held = (connections + 2 * int(admin)) * (4 * head + 2**16) + 32 * (2 * body + 2**19)
    kernel = (min(int(grpc), int(clients) // 2**17) + connections + 2 * int(admin)) * (128 + 16) * 2**10
    counted = 64 * 2**20 + 128 * int(counters) + 8192 * int(buckets) + int(clients) + held
    needed = counted * 5 / 4 + kernel
    assert container()["resources"]["limits"]["memory"] == f"{math.ceil(needed / 2**20)}Mi"


def test_all_contradictions_are_reported_at_once():
    error = refused("store=\"redis\"", "tls.enabled=true", "keda.enabled=true")
    assert error.count("\n- ") == 3, error


def test_every_object_of_the_schema_is_closed():
    """Except parts that are passed on to Kubernetes, and what a release's other charts may add."""
    def holes(schema, place):
        if schema.get("type") == "object" and "additionalProperties" not in schema:
            yield place
        if schema.get("additionalProperties") is True:
            yield place
        for name, below in {**schema.get("properties", {}), **schema.get("definitions", {})}.items():
            yield from holes(below, f"{place}/{name}")
        if isinstance(schema.get("items"), dict):
            yield from holes(schema["items"], f"{place}[]")
    assert sorted(holes(SCHEMA, "")) == ["/global", "/kubernetes", "/kubernetesList[]"]


def test_the_schema_has_no_value_that_values_yaml_lacks():
    import yaml

    values = yaml.safe_load((CHART / "values.yaml").read_text())

    def extra(schema, values, place):
        for name, below in schema.get("properties", {}).items():
            if not isinstance(values, dict) or name not in values:
                yield f"{place}.{name}"
            else:
                yield from extra(below, values[name], f"{place}.{name}")
    assert list(extra(SCHEMA, values, "")) == []


def test_every_value_is_in_the_readme_and_every_setting_in_the_schema():
    sys.path.insert(0, str(ROOT / "helm"))
    import pages
    import yaml

    run = subprocess.run([sys.executable, ROOT / "helm" / "pages.py", "--check"], capture_output=True, text=True)
    assert run.returncode == 0, run.stdout
    documented = {path for _, path, *_ in pages.values()}

    def silent(values, place):
        for name, value in values.items():
            path = f"{place}{name}"
            if path in documented:
                continue
            if isinstance(value, dict) and value:
                yield from silent(value, f"{path}.")
            else:
                yield path
    assert list(silent(yaml.safe_load((CHART / "values.yaml").read_text()), "")) == []


def test_a_parent_chart_may_have_its_own_globals():
    render("default", "global.storageClass=\"fast\"")
