"""examples/kind and its page: valid objects that fit the chart, the image, Valkey and Envoy of the walk-through."""

import re
import subprocess

import jsonschema
import kubernetes_validate
import pytest
import yaml

from chart import CHART, NEWEST, OLDEST, ROOT, WEIR, helm
from custom import NUMBER, TEXT, closed, listed
from test_compose import SERVICES
from test_examples import ENVOYS
from test_golden import RESTRICTED, RESTRICTED_POD

FOLDER = ROOT / "examples" / "kind"
PAGE = (ROOT / "docs" / "start" / "kind.md").read_text()
CLUSTER = yaml.safe_load((FOLDER / "cluster.yaml").read_text())
VALUES = yaml.safe_load((FOLDER / "weir-values.yaml").read_text())
VALKEY = list(yaml.safe_load_all((FOLDER / "valkey.yaml").read_text()))
ENVOY = list(yaml.safe_load_all((FOLDER / "envoy.yaml").read_text()))

# The fields that the file uses, from kind's documentation. A field that is not here is refused.
MAPPING = closed({"containerPort", "hostPort"}, containerPort=NUMBER, hostPort=NUMBER, listenAddress={"const": "127.0.0.1"},
                 protocol={"const": "TCP"})
CLUSTER_FORM = closed(
    {"kind", "apiVersion", "nodes"},
    kind={"const": "Cluster"}, apiVersion={"const": "kind.x-k8s.io/v1alpha4"}, name=TEXT,
    nodes=listed(closed({"role"}, role={"enum": ["control-plane", "worker"]}, extraPortMappings=listed(MAPPING))),
)


def one(objects, kind):
    (found,) = [it for it in objects if it["kind"] == kind]
    return found


def rendered():
    """The objects of the chart with the values of the walk-through."""
    flags = ["-n", "ratelimit", "--kube-version", NEWEST, "-f", FOLDER / "weir-values.yaml"]
    run = helm("template", "weir", CHART, *flags)
    assert run.returncode == 0, run.stderr
    return [found for found in yaml.safe_load_all(run.stdout) if found]


def deployment_of_weir():
    return one(rendered(), "Deployment")["spec"]


def address_of_weir():
    """Where Envoy calls weir."""
    config = yaml.safe_load(one(ENVOY, "ConfigMap")["data"]["envoy.yaml"])
    (weir,) = [it for it in config["static_resources"]["clusters"] if it["name"] == "weir"]
    (endpoint,) = weir["load_assignment"]["endpoints"][0]["lb_endpoints"]
    return endpoint["endpoint"]["address"]["socket_address"]


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
@pytest.mark.parametrize("found", VALKEY + ENVOY, ids=lambda it: f"{it['kind']} {it['metadata']['name']}")
def test_every_object_is_valid(found, version):
    kubernetes_validate.validate(found, version, strict=True)
    assert "namespace" not in found["metadata"], "the page names it"


def test_the_cluster_has_known_fields_only():
    jsonschema.validate(CLUSTER, CLUSTER_FORM)


@pytest.mark.parametrize("objects", [VALKEY, ENVOY], ids=["valkey", "envoy"])
def test_pods_keep_to_the_restricted_profile(objects):
    pod = one(objects, "Deployment")["spec"]["template"]["spec"]
    # No volume has files that belong to a group.
    assert pod["securityContext"] == {name: value for name, value in RESTRICTED_POD.items() if name != "fsGroup"}
    assert pod["automountServiceAccountToken"] is False and pod["enableServiceLinks"] is False
    (container,) = pod["containers"]
    assert container["securityContext"] == RESTRICTED
    assert "memory" in container["resources"]["limits"] and "requests" in container["resources"]
    assert "readinessProbe" in container
    assert all(mount["readOnly"] for mount in container.get("volumeMounts", []))


@pytest.mark.parametrize("objects", [VALKEY, ENVOY], ids=["valkey", "envoy"])
def test_services_select_the_pods(objects):
    service, deployment = one(objects, "Service")["spec"], one(objects, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    assert service["selector"].items() <= labels.items()
    (port,), (container,) = service["ports"], deployment["template"]["spec"]["containers"]
    assert port["targetPort"] in [it["name"] for it in container["ports"]]


def test_weir_counts_in_this_valkey():
    service = one(VALKEY, "Service")
    assert VALUES["store"] == "redis"
    assert VALUES["redis"]["hosts"] == [f"{service['metadata']['name']}:{service['spec']['ports'][0]['port']}"]


def test_the_image_is_the_one_of_the_page():
    """Built, copied to the node, and never fetched from a registry."""
    (container,) = deployment_of_weir()["template"]["spec"]["containers"]
    assert container["imagePullPolicy"] == "Never"
    built = re.search(r"docker build -t (\S+) ", PAGE)[1]
    loaded, cluster = re.search(r"kind load docker-image (\S+) --name (\S+)", PAGE).groups()
    assert built == loaded == container["image"]
    assert cluster == CLUSTER["name"] == re.search(r"kind delete cluster --name (\S+)", PAGE)[1]


def test_the_versions_are_those_of_compose():
    images = [one(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"] for objects in (VALKEY, ENVOY)]
    assert images == [SERVICES["valkey"]["image"], SERVICES["envoy"]["image"]]


def test_envoy_has_the_configuration_of_compose():
    """With the headless Service of the chart in place of the service of Compose."""
    compose = yaml.safe_load((ROOT / "examples" / "compose" / "envoy.yaml").read_text())
    (weir,) = [it for it in compose["static_resources"]["clusters"] if it["name"] == "weir"]
    weir["load_assignment"]["endpoints"][0]["lb_endpoints"][0]["endpoint"]["address"]["socket_address"] = address_of_weir()
    assert yaml.safe_load(one(ENVOY, "ConfigMap")["data"]["envoy.yaml"]) == compose


@pytest.mark.parametrize("version", ENVOYS)
def test_envoy_accepts_its_configuration(version, tmp_path):
    config = tmp_path / "envoy.yaml"
    config.write_text(one(ENVOY, "ConfigMap")["data"]["envoy.yaml"])
    envoy = ROOT / "target" / "envoy" / version / "bin" / "envoy"
    run = subprocess.run([envoy, "--mode", "validate", "-c", config], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_envoy_calls_the_headless_service():
    address = address_of_weir()
    (service,) = [it for it in rendered() if it["kind"] == "Service" and it["metadata"]["name"] == address["address"]]
    assert service["spec"]["clusterIP"] == "None"
    assert address["port_value"] in [port["port"] for port in service["spec"]["ports"]]


def test_envoy_reads_its_config_map():
    spec = one(ENVOY, "Deployment")["spec"]["template"]["spec"]
    (container,), (volume,) = spec["containers"], spec["volumes"]
    (mount,) = container["volumeMounts"]
    found = one(ENVOY, "ConfigMap")
    assert volume["configMap"]["name"] == found["metadata"]["name"] and mount["name"] == volume["name"]
    path = container["args"][container["args"].index("--config-path") + 1]
    assert path in [f"{mount['mountPath']}/{name}" for name in found["data"]]


def test_the_port_of_the_page_leads_to_envoy():
    (mapping,) = CLUSTER["nodes"][0]["extraPortMappings"]
    (port,) = one(ENVOY, "Service")["spec"]["ports"]
    assert one(ENVOY, "Service")["spec"]["type"] == "NodePort" and port["nodePort"] == mapping["containerPort"]
    assert f"http://localhost:{mapping['hostPort']}/" in PAGE


def test_the_rules_limit_what_envoy_sends(tmp_path):
    (tmp_path / "demo.yaml").write_text(VALUES["rules"]["demo.yaml"])
    command = [WEIR, "explain", "--rules", tmp_path / "demo.yaml", "--domain", "demo", "user=alice"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0 and "3 per 1m" in run.stdout, run.stdout + run.stderr


def test_the_values_say_the_memory_limit():
    (container,) = deployment_of_weir()["template"]["spec"]["containers"]
    limit = container["resources"]["limits"]["memory"]
    assert f"lower the memory limit of a pod to {limit}." in (FOLDER / "weir-values.yaml").read_text()
