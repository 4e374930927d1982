"""The Service inside and outside the cluster: its fields, and combinations that the API server refuses or ignores."""

import pytest

from chart import one, refused


def spec(case, *sets):
    return one("Service", case, *sets)["spec"]


def test_a_load_balancer_has_its_fields():
    found = spec("load-balancer")
    assert found["type"] == "LoadBalancer" and found["loadBalancerClass"] == "internal"
    assert found["loadBalancerSourceRanges"] == ["10.0.0.0/8"]
    assert found["allocateLoadBalancerNodePorts"] is False and found["healthCheckNodePort"] == 30999
    assert found["externalTrafficPolicy"] == "Local"
    assert (found["ipFamilyPolicy"], found["ipFamilies"]) == ("RequireDualStack", ["IPv6", "IPv4"])
    assert one("Service", "load-balancer")["metadata"]["annotations"] == {"example.com/internal": "true"}


def test_a_node_port_has_its_fields():
    found = spec("node-port")
    assert found["type"] == "NodePort" and found["externalTrafficPolicy"] == "Local"
    assert [(port["name"], port["nodePort"]) for port in found["ports"]] == [("grpc", 30081)]
    labels = one("Service", "node-port")["metadata"]["labels"]
    assert labels["example.com/reachable"] == "outside" and labels["weir.dev/service"] == "main"


def test_fields_without_a_value_are_not_rendered():
    assert set(spec("default")) == {"type", "selector", "ports"}


@pytest.mark.parametrize(("case", "sets", "ports"), [
    ("default", [], ["grpc", "http", "metrics"]),
    ("default", ["metrics.enabled=false"], ["grpc", "http"]),
    ("default", ['service.exposedPorts=["metrics","grpc"]'], ["grpc", "metrics"]),
    ("default", ['service.exposedPorts=["metrics","grpc"]', "metrics.enabled=false"], ["grpc"]),
    ("load-balancer", [], ["grpc", "http"]),
])
def test_the_service_has_the_exposed_ports(case, sets, ports):
    assert [port["name"] for port in spec(case, *sets)["ports"]] == ports


NODE, BALANCER = 'service.type="NodePort"', 'service.type="LoadBalancer"'


@pytest.mark.parametrize(("sets", "words"), [
    (["service.nodePorts.grpc=30081"], "service.nodePorts.grpc needs service.type: NodePort or LoadBalancer"),
    ([BALANCER, "service.allocateLoadBalancerNodePorts=false", "service.nodePorts.http=30080"],
     "service.nodePorts.http needs service.allocateLoadBalancerNodePorts"),
    ([NODE, 'service.exposedPorts=["grpc"]', "service.nodePorts.http=30080"], "the Service has no port of this name"),
    ([NODE, "metrics.enabled=false", "service.nodePorts.metrics=30090"], "the Service has no port of this name"),
    ([NODE, "service.nodePorts.grpc=30081", "service.nodePorts.http=30081"], "service.nodePorts: 30081 occurs twice"),
    (["service.ports.grpc=80", "service.ports.http=80"], "service.ports: two exposed ports are equal"),
    ([NODE, 'service.loadBalancerClass="a"'], "service.loadBalancerClass needs service.type: LoadBalancer"),
    ([NODE, 'service.loadBalancerSourceRanges=["10.0.0.0/8"]'], "service.loadBalancerSourceRanges needs"),
    ([NODE, "service.allocateLoadBalancerNodePorts=true"], "service.allocateLoadBalancerNodePorts needs"),
    (['service.externalTrafficPolicy="Local"'], "service.externalTrafficPolicy needs service.type"),
    ([BALANCER, "service.healthCheckNodePort=30999"], "and service.externalTrafficPolicy: Local"),
    ([NODE, 'service.externalTrafficPolicy="Local"', "service.healthCheckNodePort=30999"], "service.healthCheckNodePort needs"),
    (['service.internalTrafficPolicy="Local"', 'service.trafficDistribution="PreferClose"'], "has no effect"),
    ([NODE, 'service.clusterIP="None"'], "service.clusterIP: None needs service.type: ClusterIP"),
    (['service.exposedPorts=["grpc"]', "metrics.serviceMonitor.enabled=true"], "metrics.podMonitor does not"),
])
def test_combinations_without_effect_are_refused(sets, words):
    error = refused(*sets)
    assert words in error and error.count("\n- ") == 1, error


@pytest.mark.parametrize("value", [
    "service.exposedPorts=[]", 'service.exposedPorts=["http"]', 'service.exposedPorts=["grpc","admin"]',
    'service.ipFamilies=["IPv5"]', "service.healthCheckNodePort=0", 'service.allocateLoadBalancerNodePorts="no"',
])
def test_values_of_another_form_are_refused(value):
    assert value.split("=")[0] in refused(value)


def test_two_equal_ports_are_accepted_if_one_is_not_exposed():
    assert len(spec("default", "service.ports.grpc=80", "service.ports.http=80", 'service.exposedPorts=["grpc"]')["ports"]) == 1
