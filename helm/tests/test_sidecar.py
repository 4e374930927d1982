"""`kind: Sidecar`: examples/sidecar, an application's chart that runs weir in its pods."""

import json
import shutil
import socket
import subprocess
import time

import kubernetes_validate
import pytest
import yaml

from chart import CHART, HELM, NEWEST, OLDEST, ROOT, WEIR, every, one, refused, render

EXAMPLE = ROOT / "examples" / "sidecar"
# Kubernetes has native sidecars since 1.29.
PLAIN, NATIVE = "1.28", "1.29"


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    """A copy of the example with its dependency, as `helm dependency update` makes it."""
    copy = tmp_path_factory.mktemp("sidecar")
    for path in (EXAMPLE, CHART):
        shutil.copytree(path, copy / path.relative_to(ROOT), ignore=shutil.ignore_patterns("charts", "Chart.lock"))
    run = subprocess.run([HELM, "dependency", "update", "examples/sidecar"], cwd=copy, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return copy


def template(folder, version, **weir):
    values = ["--set-json", "weir=" + json.dumps(weir)] if weir else []
    command = [HELM, "template", "shop", "examples/sidecar", "-n", "ns", "--kube-version", version, *values]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


def objects(folder, version=NEWEST, **weir):
    run = template(folder, version, **weir)
    assert run.returncode == 0, run.stderr
    return [found for found in yaml.safe_load_all(run.stdout) if found]


def pod(found):
    (deployment,) = [o for o in found if o["kind"] == "Deployment"]
    return deployment["spec"]["template"]


def weir_container(spec):
    (found,) = [c for c in spec.get("initContainers", []) + spec["containers"] if c["name"] == "weir"]
    return found


def settings(found):
    (text,) = [o["data"]["weir.yaml"] for o in found if o["kind"] == "ConfigMap" and "weir.yaml" in o["data"]]
    return text


@pytest.mark.parametrize("version", [OLDEST, PLAIN, NATIVE, NEWEST])
def test_every_object_of_the_example_is_valid(folder, version):
    found = objects(folder, version)
    assert sorted(o["kind"] for o in found) == ["ConfigMap", "ConfigMap", "Deployment"]
    for each in found:
        kubernetes_validate.validate(each, version, strict=True)
    run = subprocess.run([HELM, "lint", "--strict", "examples/sidecar"], cwd=folder, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout


def test_weir_is_a_native_sidecar_where_kubernetes_has_them(folder):
    native, plain = pod(objects(folder, NATIVE))["spec"], pod(objects(folder, PLAIN))["spec"]
    assert [c["name"] for c in native["initContainers"]] == ["weir-check", "weir"]
    assert [c["name"] for c in native["containers"]] == ["shop"]
    assert [c["name"] for c in plain["initContainers"]] == ["weir-check"]
    assert [c["name"] for c in plain["containers"]] == ["weir", "shop"]
    assert weir_container(native) == {**weir_container(plain), "restartPolicy": "Always"}


def test_a_native_sidecar_ends_last_and_does_not_delay_its_end(folder):
    native, plain = (yaml.safe_load(settings(objects(folder, version))) for version in (NATIVE, PLAIN))
    assert native.pop("drain") == {"delay": "0s"} and "drain" not in plain and native == plain
    found = objects(folder, NATIVE, settings={"drain": {"delay": "1s"}})
    assert yaml.safe_load(settings(found))["drain"] == {"delay": "1s"}


def test_only_metrics_are_reachable_from_other_pods(folder):
    found = objects(folder)
    listens = {name: section["listen"] for name, section in yaml.safe_load(settings(found)).items() if "listen" in section}
    assert listens == {"grpc": "127.0.0.1:8081", "http": "127.0.0.1:8082", "admin": "127.0.0.1:6070", "metrics": "[::]:9090"}
    weir = weir_container(pod(found)["spec"])
    assert weir["ports"] == [{"name": "weir-metrics", "containerPort": 9090, "protocol": "TCP"}]
    # The kubelet cannot reach the loopback of the pod.
    assert "livenessProbe" not in weir
    for probe in ("startupProbe", "readinessProbe"):
        assert weir[probe]["exec"]["command"] == ["/bin/weir", "health", "--addr=127.0.0.1:8081", "--timeout=1000"]
        assert weir[probe]["timeoutSeconds"] > 1


def test_the_containers_do_not_depend_on_the_pod(folder):
    """Their security and the right to read Secrets do not come from a pod that the chart does not make."""
    spec = pod(objects(folder, redis={"existingSecret": {"name": "redis"}}))["spec"]
    assert "securityContext" not in spec
    for found in spec["initContainers"]:
        assert found["securityContext"] == {
            "runAsNonRoot": True, "runAsUser": 65534, "runAsGroup": 65534, "seccompProfile": {"type": "RuntimeDefault"},
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
        }
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert all(name.startswith("weir-") for name in volumes), "the pod has volumes of other charts"
    assert volumes["weir-redis-password"]["secret"]["defaultMode"] == 0o444
    assert {mount["name"] for mount in weir_container(spec)["volumeMounts"]} == set(volumes)


def test_changed_settings_replace_the_pods(folder):
    before = pod(objects(folder))["metadata"]["annotations"]
    after = pod(objects(folder, settings={"log": {"level": "debug"}}))["metadata"]["annotations"]
    assert before.keys() == after.keys() == {"weir.dev/checksum-settings"} and before != after
    assert pod(objects(folder, rules={"a.yaml": "domain: a"}))["metadata"]["annotations"] == before
    both = pod(objects(folder, restartOnRuleChange=True))["metadata"]["annotations"]
    assert both.keys() == {"weir.dev/checksum-settings", "weir.dev/checksum-rules"}


def test_the_pod_monitor_selects_the_pods_of_the_application(folder):
    found = objects(folder, metrics={"podMonitor": {"enabled": True}})
    (monitor,) = [o["spec"] for o in found if o["kind"] == "PodMonitor"]
    assert monitor["selector"]["matchLabels"].items() <= pod(found)["metadata"]["labels"].items()
    (endpoint,) = monitor["podMetricsEndpoints"]
    assert endpoint["port"] == weir_container(pod(found)["spec"])["ports"][0]["name"]


def test_the_chart_itself_makes_no_pods():
    assert sorted({found["kind"] for found in render("sidecar")}) == ["ConfigMap", "PodMonitor"]
    assert not every("Service", "sidecar") and one("ConfigMap", "sidecar", suffix="-rules")


def test_the_templates_need_the_kind(folder):
    run = template(folder, NEWEST, kind="Deployment")
    assert run.returncode != 0 and "need kind: Sidecar in the values of weir, which have kind: Deployment" in run.stderr


@pytest.mark.parametrize(("sets", "words"), [
    ([], "each pod would admit the whole limit"),
    (["allowPerPodLimits=true", "replicaCount=2"], "kind: Sidecar runs in the pods of the application"),
    (["allowPerPodLimits=true", "tls.enabled=true", 'tls.existingSecret="a"'], "tls.enabled does not apply to kind: Sidecar"),
    (["allowPerPodLimits=true", "networkPolicy.enabled=true"], "networkPolicy.enabled does not apply to kind: Sidecar"),
    (["allowPerPodLimits=true", "podDisruptionBudget.enabled=true"], "the chart of the application has the budget"),
    (["allowPerPodLimits=true", "metrics.serviceMonitor.enabled=true"], "use metrics.podMonitor"),
    (["allowPerPodLimits=true", 'sidecars=[{"name":"a"}]'], "sidecars: they do not apply to kind: Sidecar"),
    (["allowPerPodLimits=true", "sidecar.ports.http=8081"], "sidecar.ports: two of them are equal"),
    (['store="redis"', 'redis.hosts=["a:1"]', 'settings={"fallback":{"on_error":"local"}}'], "settings.fallback.instances"),
])
def test_values_that_do_not_fit_are_refused(sets, words):
    error = refused('kind="Sidecar"', *sets)
    assert words in error and error.count("\n- ") == 1, error


def free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def test_the_probe_and_a_call_reach_a_real_weir(folder, tmp_path):
    """By the rendered settings and rules, with other ports and folders."""
    ports = dict(zip(("grpc", "http", "admin", "metrics"), free_ports(4)))
    found = objects(folder, store="memory", allowPerPodLimits=True, sidecar={"ports": ports})
    rules = [o["data"] for o in found if o["metadata"]["name"] == "shop-weir-rules"][0]
    (tmp_path / "rules").mkdir()
    for name, text in rules.items():
        (tmp_path / "rules" / name).write_text(text)
    (tmp_path / "weir.yaml").write_text(settings(found).replace("/etc/weir", str(tmp_path)))
    weir = weir_container(pod(found)["spec"])
    probe = [WEIR, *weir["readinessProbe"]["exec"]["command"][1:]]
    check = [WEIR, "check", "--config", tmp_path / "weir.yaml"]
    run = subprocess.run(check, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    with subprocess.Popen([WEIR, "serve", f"--config={tmp_path}/weir.yaml"], stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + 30
            while subprocess.run(probe, capture_output=True).returncode:
                assert process.poll() is None and time.monotonic() < deadline, "weir does not serve"
                # The kubelet repeats the probe too.
                time.sleep(0.05)
            (address,) = [e["value"] for c in pod(found)["spec"]["containers"] if c["name"] == "shop" for e in c["env"]]
            call = subprocess.run([WEIR, "call", "--addr", address, "--domain", "shop", "user=alice"], capture_output=True, text=True)
            assert call.returncode == 0 and "100" in call.stdout, call.stdout + call.stderr
        finally:
            process.terminate()
        assert process.wait(40) == 0
