"""Rendered fields that must not change unnoticed: security, ports, selectors, checksums, timing."""

import json
import re

import pytest
import yaml

from chart import CASES, CHART, ROOT, WITH_PODS, container, every, one, pod, pods, render, settings

SELECTOR = {"app.kubernetes.io/name": "weir", "app.kubernetes.io/instance": "rel"}
RESTRICTED_POD = {
    "runAsNonRoot": True, "runAsUser": 65534, "runAsGroup": 65534, "fsGroup": 65534,
    "seccompProfile": {"type": "RuntimeDefault"},
}
RESTRICTED = {
    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
}

# Cases whose values switch the check off.
UNCHECKED = {"existing-rules": {"weir", "call"}}


def our_containers(case):
    for spec in (found["spec"] for found in pods(case)):
        for found in spec.get("initContainers", []) + spec["containers"]:
            if found["name"] in ("weir", "check", "call"):
                yield found


@pytest.mark.parametrize("case", WITH_PODS)
def test_pods_keep_to_the_restricted_profile(case):
    for spec in (found["spec"] for found in pods(case)):
        assert spec["securityContext"] == RESTRICTED_POD
        assert spec["automountServiceAccountToken"] is False
        assert spec["enableServiceLinks"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
    ours = list(our_containers(case))
    assert {found["name"] for found in ours} == UNCHECKED.get(case, {"weir", "check", "call"})
    for found in ours:
        assert found["securityContext"] == RESTRICTED
        assert {"requests", "limits"} <= set(found["resources"])
        assert all(mount["readOnly"] for mount in found.get("volumeMounts", []) if mount["name"] != "scratch")
    for account in every("ServiceAccount", case):
        assert account["automountServiceAccountToken"] is False


@pytest.mark.parametrize("case", CASES)
def test_no_password_is_in_an_object(case):
    """Secrets are named, never rendered."""
    assert not every("Secret", case)
    redis = settings(case).get("redis", {})
    assert "@" not in redis.get("url", "") and "password" not in redis


def test_the_ports_are_envoy_ratelimit():
    ports = {port["name"]: port["containerPort"] for port in container()["ports"]}
    assert ports == {"grpc": 8081, "http": 8080, "metrics": 9090}
    service = {port["name"]: port for port in one("Service")["spec"]["ports"]}
    assert {name: port["port"] for name, port in service.items()} == ports
    assert all(port["targetPort"] == name for name, port in service.items())
    assert service["grpc"]["appProtocol"] == "grpc"
    headless = one("Service", suffix="-headless")["spec"]
    assert headless["clusterIP"] == "None"
    assert [(port["name"], port["port"], port["appProtocol"]) for port in headless["ports"]] == [("grpc", 8081, "grpc")]


@pytest.mark.parametrize("case", WITH_PODS)
def test_listeners_use_the_ports_and_admin_is_on_loopback(case):
    found = settings(case)
    listens = {section: found[section]["listen"] for section in ("grpc", "http", "metrics", "admin")}
    assert listens == {
        "grpc": "[::]:8081", "http": "[::]:8080", "metrics": "[::]:9090", "admin": "127.0.0.1:6070",
    }
    assert all(port["containerPort"] != 6070 for port in container(case)["ports"])


def test_node_ports_are_fixed_only_where_set():
    ports = {port["name"]: port for port in one("Service", "everything")["spec"]["ports"]}
    assert {name: port.get("nodePort") for name, port in ports.items()} == {"grpc": 30081, "http": None, "metrics": None}
    assert all("nodePort" not in port for port in one("Service")["spec"]["ports"])


def test_a_monitor_has_its_limits_and_its_tls():
    found = one("ServiceMonitor", "observed")
    assert found["metadata"]["annotations"]["example.com/owner"] == "edge"
    assert found["spec"]["sampleLimit"] == 20000
    (endpoint,) = found["spec"]["endpoints"]
    assert endpoint["scheme"] == "https" and endpoint["tlsConfig"] == {"insecureSkipVerify": True}
    found = one("PodMonitor", "pod-monitor")
    assert found["spec"]["sampleLimit"] == 5000
    (endpoint,) = found["spec"]["podMetricsEndpoints"]
    assert not {"scheme", "tlsConfig"} & set(endpoint) and "annotations" not in found["metadata"]


def test_metrics_can_be_disabled():
    sets = ["metrics.enabled=false"]
    assert "metrics" not in settings("default", *sets)
    assert [port["name"] for port in container("default", *sets)["ports"]] == ["grpc", "http"]
    assert [port["name"] for port in one("Service", "default", *sets)["spec"]["ports"]] == ["grpc", "http"]


def test_the_selector_is_unchanged():
    """A Deployment's selector cannot be changed: every upgrade would fail."""
    assert one("Deployment")["spec"]["selector"] == {"matchLabels": SELECTOR}


@pytest.mark.parametrize("case", [case for case in WITH_PODS if case != "trial-redis"])
def test_every_selector_matches_the_pods_only(case):
    labels = pod(case)["metadata"]["labels"]
    selectors = [found["spec"]["selector"] for found in every("Service", case)]
    selectors += [found["spec"]["selector"]["matchLabels"] for found in every("PodDisruptionBudget", case)]
    selectors += [found["spec"]["selector"]["matchLabels"] for found in every("PodMonitor", case)]
    selectors += [found["spec"]["podSelector"]["matchLabels"] for found in every("NetworkPolicy", case)]
    for selector in selectors:
        assert selector == SELECTOR and selector.items() <= labels.items()
        for test in every("Pod", case):
            assert not selector.items() <= test["metadata"]["labels"].items()


def test_a_service_monitor_matches_one_service():
    selector = one("ServiceMonitor", "observed")["spec"]["selector"]["matchLabels"].items()
    met = [o["metadata"]["name"] for o in every("Service", "observed") if selector <= o["metadata"]["labels"].items()]
    assert met == ["rel-weir"]


def test_a_rollout_keeps_all_pods_available():
    strategy = one("Deployment")["spec"]["strategy"]
    assert strategy == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"}}


@pytest.mark.parametrize(("drain", "seconds"), [
    ('{}', 5 + 30 + 5),
    ('{"delay":"0"}', 0 + 30 + 5),
    ('{"delay":"0s","timeout":"0s"}', 0 + 0 + 5),
    ('{"delay":"1m30s","timeout":"1500ms"}', 90 + 2 + 5),
    ('{"timeout":"1h"}', 5 + 3600 + 5),
])
def test_the_grace_period_covers_the_drain(drain, seconds):
    sets = [f'settings={{"drain":{drain}}}']
    assert pod("default", *sets)["spec"]["terminationGracePeriodSeconds"] == seconds
    written = settings("default", *sets).get("drain", {})
    assert written == json.loads(drain)


def test_the_drain_defaults_match_the_docs():
    """Without values, the chart derives the grace period from these defaults."""
    page = (ROOT / "docs" / "reference" / "settings.md").read_text()
    assert "| `drain.delay` | `5s` |" in page and "| `drain.timeout` | `30s` |" in page


def test_probes_use_paths_of_the_http_port():
    found = container()
    probes = {name: found[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert probes == {
        "startupProbe": {"path": "/livez", "port": "http"},
        "livenessProbe": {"path": "/livez", "port": "http"},
        "readinessProbe": {"path": "/readyz", "port": "http"},
    }


def checksums(case, *sets):
    annotations = pod(case, *sets)["metadata"]["annotations"]
    return {name: text for name, text in annotations.items() if name.startswith("checksum/")}


def test_changed_settings_replace_pods_and_changed_rules_do_not():
    before = checksums("default")
    assert list(before) == ["checksum/settings"] and len(before["checksum/settings"]) == 64
    assert checksums("default", 'settings={"response":{"headers":"both"}}') != before
    assert checksums("default", 'rules={"a.yaml":"domain: a"}') == before
    restarting = [checksums("default", "restartOnRuleChange=true", f'rules={{"a.yaml":"domain: {d}"}}') for d in "ab"]
    assert restarting[0]["checksum/rules"] != restarting[1]["checksum/rules"]
    assert restarting[0]["checksum/settings"] == before["checksum/settings"]


def test_rules_are_mounted_as_a_folder():
    """Kubernetes does not update a subPath mount when its ConfigMap changes."""
    for case in WITH_PODS:
        for found in our_containers(case):
            assert all("subPath" not in mount for mount in found.get("volumeMounts", []))
    mounts = {mount["name"]: mount["mountPath"] for mount in container()["volumeMounts"]}
    assert settings()["rules"]["paths"] == [mounts["rules"]] == ["/etc/weir/rules"]


def test_overlays_are_mounted_as_a_folder():
    mounts = {mount["name"]: mount["mountPath"] for mount in container("xds")["volumeMounts"]}
    assert settings("xds")["rules"]["overlay_paths"] == [mounts["overlays"]] == ["/etc/weir/overlays"]
    volumes = {volume["name"]: volume for volume in pod("xds")["spec"]["volumes"]}
    files = one("ConfigMap", "xds", suffix="-overlays")
    assert volumes["overlays"]["configMap"]["name"] == files["metadata"]["name"]
    assert yaml.safe_load(files["data"]["limits.yaml"])["overlays"][0]["rule"] == "**"
    assert "overlays" not in str(settings()) + str(pod())


def test_rules_of_a_server_need_no_rule_files():
    assert "paths" not in settings("xds")["rules"]
    assert settings("xds")["rules"]["xds"]["node_id"] == "envoy-ratelimit"
    for sets in ('rules={"a.yaml":"domain: a"}', 'existingRulesConfigMap="b"'):
        assert settings("xds", sets)["rules"]["paths"] == ["/etc/weir/rules"]


def test_rules_are_templates_only_if_enabled():
    text = 'domain: "{{ .Release.Name }}"\n# {{ braces }}\n'
    data = one("ConfigMap", "default", "rules=" + json.dumps({"a.yaml": text}), suffix="-rules")["data"]
    assert data["a.yaml"].strip() == text.strip()
    data = one("ConfigMap", "rules", suffix="-rules")["data"]
    assert "value: rel\n" in data["shop.yaml"]


def test_the_init_container_checks_the_files_of_the_service():
    check, weir = pod("redis-cluster")["spec"]["initContainers"][0], container("redis-cluster")
    assert check["name"] == "check" and check["image"] == weir["image"]
    assert check["command"] + check["args"] == ["/bin/weir", "check", "--config", "/etc/weir/settings/weir.yaml"]
    assert check["volumeMounts"] == weir["volumeMounts"]
    for case in ("everything", "redis", "redis-url"):
        check, weir = pod(case)["spec"]["initContainers"][0], container(case)
        assert check["env"] == weir["env"] and check.get("envFrom") == weir.get("envFrom")
    assert pod("existing-rules")["spec"].get("initContainers") in (None, [])


@pytest.mark.parametrize("case", WITH_PODS)
def test_every_mount_has_its_volume_and_every_volume_a_mount(case):
    volumes = {volume["name"] for volume in pod(case)["spec"]["volumes"]}
    assert volumes == {mount["name"] for mount in container(case)["volumeMounts"]}


@pytest.mark.parametrize(("case", "redis"), [
    ("redis", {"url": "redis://redis.data.svc:6379/2", "username": "weir", "password_file": "/etc/weir/redis/password"}),
    ("redis-sentinel", {
        "url": "rediss-sentinel://sentinel-0.redis:26379?node=sentinel-1.redis:26379&node=sentinel-2.redis:26379"
               "&sentinelServiceName=main",
        "password_file": "/etc/weir/redis/password", "tls_ca": "/etc/weir/redis-ca/ca.crt",
        "tls_skip_hostname_check": False,
    }),
    ("redis-cluster", {
        "url": "rediss-cluster://redis-0.redis:6379?node=redis-1.redis:6379&node=[fd00::7]:6379",
        "password_file": "/etc/weir/redis/password", "tls_ca": "/etc/weir/redis-ca/ca.crt",
        "tls_cert": "/etc/weir/redis-tls/tls.crt", "tls_key": "/etc/weir/redis-tls/tls.key",
        "tls_skip_hostname_check": True,
    }),
    ("redis-url", None),
])
def test_the_redis_settings_follow_the_values(case, redis):
    assert settings(case)["store"]["kind"] == "redis"
    assert settings(case).get("redis") == redis


def test_secret_values_come_from_the_secret():
    env = {variable["name"]: variable["valueFrom"]["secretKeyRef"] for variable in container("redis-url")["env"]}
    assert env == {"WEIR__REDIS__URL": {"name": "redis", "key": "url"}}
    env = {variable["name"]: variable["valueFrom"]["secretKeyRef"] for variable in container("redis")["env"]}
    assert env == {"WEIR__REDIS__KEY_SECRET": {"name": "redis", "key": "key-secret"}}


def test_tls_files_are_mounted_at_the_paths_of_the_settings():
    grpc = settings("mtls")["grpc"]
    mounts = {mount["mountPath"] for mount in container("mtls")["volumeMounts"]}
    assert {grpc["tls_cert"], grpc["tls_key"]} == {"/etc/weir/tls/tls.crt", "/etc/weir/tls/tls.key"}
    assert grpc["tls_client_ca"] == "/etc/weir/client-ca/ca.crt"
    assert (grpc["tls_client_cert"], grpc["tls_client_san"]) == ("required", "envoy.example.com")
    assert {"/etc/weir/tls", "/etc/weir/client-ca"} <= mounts
    secret = one("Certificate", "mtls")["spec"]["secretName"]
    volumes = {volume["name"]: volume for volume in pod("mtls")["spec"]["volumes"]}
    assert volumes["tls"]["secret"]["secretName"] == secret == "rel-weir-tls"
    names = one("Certificate", "mtls")["spec"]["dnsNames"]
    assert {"rel-weir.ns.svc", "rel-weir-headless.ns.svc.cluster.local", "ratelimit.example.com"} <= set(names)


@pytest.mark.parametrize(("case", "instances"), [("default", 1), ("redis", 3), ("redis-cluster", 3), ("keda", 2), ("rules", 3)])
def test_the_local_share_of_a_limit_uses_the_minimum_of_pods(case, instances):
    assert settings(case)["fallback"]["instances"] == instances


def test_an_autoscaler_sets_the_number_of_pods():
    assert one("Deployment")["spec"]["replicas"] == 1
    for case in ("redis-cluster", "keda"):
        assert "replicas" not in one("Deployment", case)["spec"]


def test_large_numbers_are_rendered_as_integers():
    assert "max_counters: 4000000\n" in one("ConfigMap", "rules")["data"]["weir.yaml"]


def test_the_network_policy_allows_the_listed_traffic():
    spec = one("NetworkPolicy", "redis")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["ports"][0]["port"] for rule in spec["ingress"]] == ["grpc", "http", "metrics"]
    assert ["from" in rule for rule in spec["ingress"]] == [True, False, True]
    (test,) = every("Pod", "redis")
    callers = spec["ingress"][0]["from"]
    assert callers[-1]["podSelector"]["matchLabels"].items() <= test["metadata"]["labels"].items()
    egress = [[port["port"] for port in rule["ports"]] for rule in spec["egress"]]
    assert egress == [[53, 53], [6379], [4317, 4318]]


def test_names_labels_and_images_follow_the_values():
    for found in render("everything"):
        if found["metadata"]["name"] in ("rel-more", "text"):
            continue
        assert found["metadata"]["namespace"] == "edge"
        assert found["metadata"]["name"].startswith("limits")
        if found["kind"] != "Pod":
            assert found["metadata"]["labels"]["team"] == "edge"
    digest = "sha256:" + "0" * 64
    images = {found["image"] for found in our_containers("everything")}
    assert images == {f"registry.example.com/weir-rs/weir:v9@{digest}"}
    more = [o for o in render("everything") if o["metadata"]["name"] == "rel-more"]
    assert more[0]["data"]["image"] in images
    assert container()["image"] == "ghcr.io/weir-rs/weir:0.1.0"


def test_helm_test_calls_through_the_service():
    call = [found for found in our_containers("everything") if found["name"] == "call"][0]
    assert call["command"] + call["args"] == [
        "/bin/weir", "call", "--addr=limits.edge:80", "--domain=shop", "--hits=0", "--timeout=5000", "user=x", "a=b,c=d",
    ]


def test_helm_test_uses_the_authority_and_a_client_certificate():
    def files(case):
        (found,) = every("Pod", case)
        secrets = {volume["name"]: volume["secret"] for volume in found["spec"]["volumes"]}
        return found["spec"]["containers"][0]["args"], secrets

    args, secrets = files("tls")
    assert "--ca=/etc/weir/ca/ca.crt" in args and "--cert" not in " ".join(args)
    assert secrets == {"ca": {"secretName": "weir-cert", "items": [{"key": "ca.crt", "path": "ca.crt"}]}}
    args, secrets = files("mtls")
    assert {"--cert=/etc/weir/client/tls.crt", "--key=/etc/weir/client/tls.key"} <= set(args)
    assert [secrets[name]["secretName"] for name in ("ca", "client")] == ["internal-ca", "caller"]
    assert not every("Pod", "mtls", 'test.clientSecret=""'), "no call could succeed"
    assert every("Pod", "mtls", 'test.clientSecret=""', 'tls.clientCA.callers="optional"')


def test_the_chart_has_the_version_of_the_crate():
    version = re.search(r'^version = "(.+)"', (ROOT / "Cargo.toml").read_text(), re.MULTILINE)[1]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == version
