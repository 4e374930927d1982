"""The trial Redis: a real server accepts its arguments, and only weir may connect to it."""

import socket
import subprocess
import time

import pytest

from chart import every, one, pods, refused, render, settings

SUFFIX = "-trial-redis"


def server():
    """The container of the trial Redis."""
    (found,) = one("Deployment", "trial-redis", suffix=SUFFIX)["spec"]["template"]["spec"]["containers"]
    return found


def test_weir_counts_in_the_trial_redis():
    service = one("Service", "trial-redis", suffix=SUFFIX)
    (port,) = service["spec"]["ports"]
    assert settings("trial-redis")["redis"] == {"url": f"redis://{service['metadata']['name']}.ns.svc:{port['port']}"}
    assert settings("trial-redis", "redis.database=3")["redis"]["url"].endswith(":6379/3")
    labels = one("Deployment", "trial-redis", suffix=SUFFIX)["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_there_is_none_by_default():
    assert not [found for found in render() if "trial" in found["metadata"]["name"]]


def test_the_selectors_of_weir_and_of_the_trial_are_separate():
    """No Service, budget or policy of one has pods of the other."""
    owners = [o["spec"]["selector"]["matchLabels"] for o in every("Deployment", "trial-redis")]
    selectors = owners + [o["spec"]["selector"] for o in every("Service", "trial-redis")]
    selectors += [o["spec"]["podSelector"]["matchLabels"] for o in every("NetworkPolicy", "trial-redis")]
    assert len(selectors) == 7
    for selector in selectors:
        matched = [p for p in pods("trial-redis") if selector.items() <= p["metadata"]["labels"].items()]
        assert len(matched) == 1


def test_it_keeps_nothing_on_a_disk():
    spec = one("Deployment", "trial-redis", suffix=SUFFIX)["spec"]
    assert spec["replicas"] == 1 and spec["strategy"] == {"type": "Recreate"}
    assert "volumes" not in spec["template"]["spec"] and not every("PersistentVolumeClaim", "trial-redis")
    assert server()["securityContext"]["readOnlyRootFilesystem"] is True


def test_only_weir_may_connect_to_it():
    trial = one("NetworkPolicy", "trial-redis", suffix=SUFFIX)["spec"]
    weir = one("NetworkPolicy", "trial-redis")["spec"]
    (rule,) = trial["ingress"]
    assert rule["from"] == [{"podSelector": weir["podSelector"]}] and trial["egress"] == []
    (egress,) = [rule for rule in weir["egress"] if rule["ports"][0]["port"] == 6379]
    assert egress["to"] == [{"podSelector": trial["podSelector"]}]
    assert not every("NetworkPolicy", "trial-redis", "networkPolicy.enabled=false")


def test_a_real_server_accepts_the_arguments(tmp_path):
    """By redis-server, which has the same options as Valkey."""
    found = server()
    assert found["command"] == ["valkey-server"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    args = [str(port) if arg == "6379" else arg for arg in found["args"]]
    # The folder is where the image starts it, without the right to write.
    with subprocess.Popen(["redis-server", *args], cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        try:
            for key, value in {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction", "maxmemory": str(64 << 20)}.items():
                assert config(port, key, process) == [key, value]
        finally:
            process.terminate()
        assert process.wait(10) == 0
    assert list(tmp_path.iterdir()) == [], "it writes no files"


def config(port, key, process):
    deadline = time.monotonic() + 10
    while True:
        run = subprocess.run(["redis-cli", "-p", str(port), "config", "get", key], capture_output=True, text=True)
        if run.returncode == 0:
            return run.stdout.split("\n")[:2]
        assert process.poll() is None and time.monotonic() < deadline, run.stderr
        # The server has no event that says when it listens.
        time.sleep(0.05)


TRIAL = ["trialRedis.enabled=true", 'store="redis"']


@pytest.mark.parametrize(("sets", "words"), [
    (["trialRedis.enabled=true"], "trialRedis.enabled needs store: redis"),
    ([*TRIAL, 'redis.hosts=["a:1"]'], "the address of Redis comes from one of them"),
    ([*TRIAL, 'redis.existingSecret={"name":"a","urlKey":"url","passwordKey":""}'], "the address of Redis comes from one of them"),
    ([*TRIAL, 'redis.topology="cluster"'], "trialRedis.enabled needs redis.topology: standalone"),
    ([*TRIAL, 'redis.username="weir"'], "the trial Redis has no TLS, no users and no password"),
    ([*TRIAL, "redis.tls.enabled=true"], "the trial Redis has no TLS, no users and no password"),
    ([*TRIAL, 'redis.existingSecret.name="a"'], "the trial Redis has no TLS, no users and no password"),
    (['store="redis"'], "or for a trial trialRedis.enabled"),
])
def test_another_redis_beside_it_is_refused(sets, words):
    error = refused(*sets)
    assert words in error and error.count("\n- ") == 1, error


def test_its_image_follows_the_values():
    def image(*sets):
        return one("Deployment", "trial-redis", *sets, suffix=SUFFIX)["spec"]["template"]["spec"]["containers"][0]["image"]

    assert image() == "docker.io/valkey/valkey:8.1-alpine"
    digest = "sha256:" + "0" * 64
    sets = ['global.imageRegistry="mirror.example.com"', f'trialRedis.image.digest="{digest}"']
    assert image(*sets) == f"mirror.example.com/valkey/valkey:8.1-alpine@{digest}"


def test_its_image_is_pulled_by_its_own_values():
    """weir may come from a private registry, or be loaded into the nodes with `pullPolicy: Never`."""
    def spec(*sets):
        return one("Deployment", "trial-redis", *sets, suffix=SUFFIX)["spec"]["template"]["spec"]

    of_weir = spec('image.pullPolicy="Never"', 'image.pullSecrets=[{"name":"weir"}]')
    assert of_weir["containers"][0]["imagePullPolicy"] == "IfNotPresent" and "imagePullSecrets" not in of_weir
    own = spec('trialRedis.image.pullPolicy="Always"', 'global.imagePullSecrets=[{"name":"mirror"}]')
    assert own["containers"][0]["imagePullPolicy"] == "Always" and own["imagePullSecrets"] == [{"name": "mirror"}]
    assert "trialRedis.image.pullPolicy" in refused('trialRedis.image.pullPolicy="Sometimes"')


def test_the_policy_of_weir_has_the_port_of_the_trial():
    egress = one("NetworkPolicy", "trial-redis", "networkPolicy.redisPorts=[7000,7001]")["spec"]["egress"]
    (rule,) = [rule for rule in egress if "to" in rule and "podSelector" in rule["to"][0]]
    assert rule["ports"] == [{"port": 6379, "protocol": "TCP"}]


def test_every_name_fits_a_service():
    """The name of a Service has at most 63 characters."""
    found = every("Service", "trial-redis", f'fullnameOverride="{"a" * 70}"')
    lengths = [len(o["metadata"]["name"]) for o in found]
    assert len(lengths) == 3 and max(lengths) == 63
