"""examples/: a real Envoy accepts the configurations, and the chart accepts the values for weir."""

import json
import subprocess

import pytest
import yaml

from chart import CHART, ROOT, WEIR, helm

EXAMPLES = ROOT / "examples"
ENVOYS = ["1.40.0", "1.36.4"]
HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"


def documents(path):
    return list(yaml.safe_load_all((EXAMPLES / path).read_text()))


def listener(routes):
    """A listener as a control plane makes it, before any patch."""
    router = {"name": "envoy.filters.http.router", "typed_config": {"@type": ROUTER}}
    manager = {"@type": HCM, "stat_prefix": "http", "http_filters": [router], "route_config": routes}
    return {
        "name": "listener",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": 0}},
        "default_filter_chain": {
            "filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}],
        },
    }


def routes():
    route = {"match": {"prefix": "/"}, "route": {"cluster": "service"}}
    return {"name": "routes", "virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]}


def cluster(name):
    return {"name": name, "type": "STATIC", "connect_timeout": "1s", "load_assignment": {"cluster_name": name}}


def validate(version, listener, clusters, tmp_path):
    envoy = ROOT / "target" / "envoy" / version / "bin" / "envoy"
    config = tmp_path / "envoy.json"
    config.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": clusters}}))
    run = subprocess.run([envoy, "--mode", "validate", "-c", config], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def descriptor_keys(rate_limits):
    """The keys of the descriptors that these actions make."""
    keys = {"remote_address": lambda _: "remote_address", "request_headers": lambda it: it["descriptor_key"]}
    return [[keys[name](it) for action in limit["actions"] for name, it in action.items()] for limit in rate_limits]


def assert_rules_limit(rules, domain, descriptors, tmp_path):
    """weir's rules limit every descriptor that the example sends."""
    (tmp_path / "rules.yaml").write_text(rules)
    words = [",".join(f"{key}=10.1.2.3" for key in keys) for keys in descriptors]
    command = [WEIR, "explain", "--rules", tmp_path / "rules.yaml", "--domain", domain, *words]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0 and run.stdout.count("\nlimit ") == len(words), run.stdout


def weir_values(path):
    run = helm("template", "weir", CHART, "-n", "ratelimit", "--kube-version", "1.37", "-f", EXAMPLES / path)
    assert run.returncode == 0, run.stderr
    objects = [found for found in yaml.safe_load_all(run.stdout) if found]
    services = {o["metadata"]["name"]: o for o in objects if o["kind"] == "Service"}
    (rules,) = [o for o in objects if o["kind"] == "ConfigMap" and o["metadata"]["name"] == "weir-rules"]
    return services, rules["data"]["edge.yaml"]


@pytest.mark.parametrize("version", ENVOYS)
def test_envoy_accepts_the_filters_for_istio(version, tmp_path):
    patches = {p["applyTo"]: p["patch"] for found in documents("istio/envoyfilters.yaml") for p in found["spec"]["configPatches"]}
    assert {name: patch["operation"] for name, patch in patches.items()} == {
        "HTTP_FILTER": "INSERT_BEFORE", "VIRTUAL_HOST": "MERGE",
    }
    table = routes()
    table["virtual_hosts"][0] |= patches["VIRTUAL_HOST"]["value"]
    made = listener(table)
    made["default_filter_chain"]["filters"][0]["typed_config"]["http_filters"].insert(0, patches["HTTP_FILTER"]["value"])
    config = patches["HTTP_FILTER"]["value"]["typed_config"]
    name = config["rate_limit_service"]["grpc_service"]["envoy_grpc"]["cluster_name"]
    validate(version, made, [cluster(name), cluster("service")], tmp_path)

    services, rules = weir_values("istio/weir-values.yaml")
    _, port, _, host = name.split("|")
    service = services[host.split(".")[0]]
    assert host == f"weir.{service['metadata']['namespace']}.svc.cluster.local"
    assert int(port) in [port["port"] for port in service["spec"]["ports"] if port["appProtocol"] == "grpc"]
    assert_rules_limit(rules, config["domain"], descriptor_keys(patches["VIRTUAL_HOST"]["value"]["rate_limits"]), tmp_path)


@pytest.mark.parametrize("version", ENVOYS)
def test_envoy_accepts_the_patches_for_envoy_gateway(version, tmp_path):
    """Applied, as JSON patches, to what Envoy Gateway makes of a listener."""
    gateway, policy = documents("envoy-gateway/gateway.yaml")
    assert policy["spec"]["targetRef"]["name"] == gateway["metadata"]["name"]
    made, clusters, config = listener(routes()), [cluster("service")], None
    manager = made["default_filter_chain"]["filters"][0]["typed_config"]
    for patch in policy["spec"]["jsonPatches"]:
        kind, operation = patch["type"].rsplit(".", 1)[1], patch["operation"]
        assert operation["op"] == "add"
        if kind == "Cluster":
            assert operation["path"] == "" and patch["name"] == operation["value"]["name"]
            clusters.append(operation["value"])
            continue
        names = [gateway["metadata"]["namespace"], gateway["metadata"]["name"], gateway["spec"]["listeners"][0]["name"]]
        assert patch["name"] == "/".join(names)
        add({"Listener": made, "RouteConfiguration": manager["route_config"]}[kind], operation)
        config = operation["value"].get("typed_config", config) if kind == "Listener" else config
    validate(version, made, clusters, tmp_path)
    assert manager["http_filters"][-1]["name"] == "envoy.filters.http.router"

    services, rules = weir_values("envoy-gateway/weir-values.yaml")
    (endpoint,) = clusters[-1]["load_assignment"]["endpoints"][0]["lb_endpoints"]
    address = endpoint["endpoint"]["address"]["socket_address"]
    service = services[address["address"].split(".")[0]]
    assert service["spec"]["clusterIP"] == "None" and address["address"].split(".")[1] == "ratelimit"
    assert address["port_value"] == service["spec"]["ports"][0]["port"]
    limits = manager["route_config"]["virtual_hosts"][0]["rate_limits"]
    assert_rules_limit(rules, config["domain"], descriptor_keys(limits), tmp_path)


def test_the_values_for_the_deployment_of_envoy_gateway_fit(tmp_path):
    """Their variables are settings, and their volume is the ConfigMap with the overlays."""
    (values,) = documents("envoy-gateway/ratelimit-values.yaml")
    deployment = values["config"]["envoyGateway"]["provider"]["kubernetes"]["rateLimitDeployment"]
    container, (volume,) = deployment["container"], deployment["pod"]["volumes"]
    env, (mount,) = {it["name"]: it["value"] for it in container["env"]}, container["volumeMounts"]
    assert env["WEIR__RULES__OVERLAY_PATHS"] == mount["mountPath"] and mount["name"] == volume["name"]
    assert env["WEIR__FALLBACK__INSTANCES"] == str(deployment["replicas"])
    (overlays,) = documents("envoy-gateway/overlays.yaml")
    assert volume["configMap"]["name"] == overlays["metadata"]["name"]
    (tmp_path / "overlays.yaml").write_text(overlays["data"]["overlays.yaml"])
    command = [WEIR, "check", "--config", EXAMPLES / "weir.yaml", EXAMPLES / "rules", "--overlay", tmp_path / "overlays.yaml"]
    run = subprocess.run(command, capture_output=True, text=True, env=env, cwd=ROOT)
    assert run.returncode == 0, run.stderr


def test_the_chart_runs_the_service_of_envoy_ai_gateway():
    """Under the name, the port and the node that its controller knows."""
    values = EXAMPLES / "envoy-gateway" / "ai-gateway-values.yaml"
    run = helm("template", "envoy-ai-gateway-ratelimit", CHART, "-n", "envoy-gateway-system", "--kube-version", "1.37", "-f", values)
    assert run.returncode == 0, run.stderr
    objects = {(o["kind"], o["metadata"]["name"]): o for o in yaml.safe_load_all(run.stdout) if o}
    service = objects["Service", "envoy-ai-gateway-ratelimit"]
    assert 8081 in [port["port"] for port in service["spec"]["ports"]]
    assert service["metadata"]["namespace"] == "envoy-gateway-system"
    settings = yaml.safe_load(objects["ConfigMap", "envoy-ai-gateway-ratelimit"]["data"]["weir.yaml"])
    assert settings["rules"]["xds"]["node_id"] == "envoy-ai-gateway-ratelimit" and "paths" not in settings["rules"]


def add(document, operation):
    """RFC 6902's `add`."""
    *path, last = operation["path"].removeprefix("/").split("/")
    for part in path:
        document = document[int(part) if isinstance(document, list) else part]
    if isinstance(document, list):
        document.insert(int(last), operation["value"])
    else:
        document[last] = operation["value"]
