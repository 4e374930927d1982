"""`kind: DaemonSet`: one pod on each node, which proxies of the node call."""

import copy

import pytest

from chart import every, one, pod, refused, settings, workload


def test_the_pods_are_those_of_the_deployment():
    """Except for the spread, which a DaemonSet has by itself."""
    deployed = copy.deepcopy(pod("default"))
    placed = copy.deepcopy(pod("default", 'kind="DaemonSet"', "allowPerPodLimits=true"))
    assert deployed["spec"].pop("topologySpreadConstraints") and "topologySpreadConstraints" not in placed["spec"]
    for found in (deployed, placed):
        # The settings differ by `fallback.instances`.
        assert found["metadata"]["annotations"].pop("checksum/settings")
    assert placed == deployed


def test_the_new_pod_of_a_node_is_ready_before_the_old_one_ends():
    found = workload("daemonset")
    assert found["kind"] == "DaemonSet" and "replicas" not in found["spec"]
    assert found["spec"]["updateStrategy"] == {
        "type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "25%"},
    }
    assert workload("daemonset-memory")["spec"]["updateStrategy"]["rollingUpdate"]["maxSurge"] == 2
    assert not every("Deployment", "daemonset") and not every("DaemonSet")


def test_no_port_of_the_node_is_taken():
    """Two pods of a node run at the same time during a rollout."""
    spec = pod("daemonset")["spec"]
    assert not spec.get("hostNetwork")
    assert all("hostPort" not in port for found in spec["containers"] for port in found["ports"])


@pytest.mark.parametrize(("case", "sets", "policy"), [
    ("default", [], None),
    ("daemonset", [], "Local"),
    ("daemonset", ['service.internalTrafficPolicy="Cluster"'], "Cluster"),
    # Prefers the pod of the node, and uses others while that one is not ready.
    ("daemonset-memory", [], None),
    ("default", ['service.internalTrafficPolicy="Local"'], "Local"),
])
def test_proxies_call_the_pod_of_their_node(case, sets, policy):
    assert one("Service", case, *sets)["spec"].get("internalTrafficPolicy") == policy
    assert "internalTrafficPolicy" not in one("Service", case, *sets, suffix="-headless")["spec"]


def test_the_number_of_nodes_is_not_guessed():
    assert settings("daemonset")["fallback"] == {"on_error": "local", "instances": 5}
    assert "fallback" not in settings("daemonset-memory")


@pytest.mark.parametrize(("sets", "words"), [
    ([], "each node would admit the whole limit; set store: redis, or accept that with allowPerPodLimits: true"),
    (['store="redis"', 'redis.hosts=["a:1"]', 'settings={"fallback":{"on_error":"local"}}'],
     "settings.fallback.on_error: local needs settings.fallback.instances"),
    (["allowPerPodLimits=true", "replicaCount=3"], "replicaCount: 3 needs kind: Deployment"),
    (["allowPerPodLimits=true", "autoscaling.enabled=true"], "autoscaling.enabled needs kind: Deployment"),
    (["allowPerPodLimits=true", "keda.enabled=true", "keda.triggers=[{}]"], "keda.enabled needs kind: Deployment"),
    (["allowPerPodLimits=true", "podDisruptionBudget.enabled=true"], "podDisruptionBudget.enabled needs kind: Deployment"),
    (["allowPerPodLimits=true", 'topologySpreadConstraints=[{"maxSkew":1}]'], "topologySpreadConstraints need kind: Deployment"),
])
def test_values_that_do_not_fit_are_refused(sets, words):
    error = refused('kind="DaemonSet"', *sets)
    assert words in error and error.count("\n- ") == 1, error


def test_the_kind_is_one_of_three():
    assert "kind" in refused('kind="StatefulSet"')
