"""examples/compose: the form of its files, and what they need of weir. tests/redis/compose.rs runs the services."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from chart import ROOT, WEIR, container

FOLDER = ROOT / "examples" / "compose"
FILES = {name: yaml.safe_load((FOLDER / f"{name}.yaml").read_text())["services"] for name in ("compose", "memory")}
SERVICES = FILES["compose"]
ALL = [pytest.param(file, name, id=f"{file}: {name}") for file, services in FILES.items() for name in services]
# Units of Compose's sizes and of Kubernetes' quantities, in MiB.
MIB = {"m": 1, "g": 1024, "Mi": 1, "Gi": 1024}


def mib(size):
    number, unit = re.fullmatch(r"(\d+)(\w+)", size).groups()
    return int(number) * MIB[unit]


def mounts(service):
    """The files of a service: the path in the container, and the path here."""
    words = [volume.split(":") for volume in service.get("volumes", [])]
    assert all(word[2:] == ["ro"] for word in words), "every mount is read-only"
    return {inside: (FOLDER / here).resolve() for here, inside, _ in words}


@pytest.mark.parametrize("file", FILES)
def test_the_file_is_valid_for_the_compose_specification(file):
    tool = Path(sys.executable).with_name("check-jsonschema")
    command = [tool, "--builtin-schema", "vendor.compose-spec", FOLDER / f"{file}.yaml"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr


def test_a_misspelt_field_is_found(tmp_path):
    """The schema is closed."""
    text = (FOLDER / "memory.yaml").read_text().replace("mem_limit:", "memory_limit:")
    (tmp_path / "compose.yaml").write_text(text)
    tool = Path(sys.executable).with_name("check-jsonschema")
    command = [tool, "--builtin-schema", "vendor.compose-spec", tmp_path / "compose.yaml"]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 1 and "memory_limit" in run.stdout, run.stdout + run.stderr


@pytest.mark.parametrize(("file", "name"), ALL)
def test_services_are_bounded_and_local(file, name):
    service = FILES[file][name]
    assert mib(service["mem_limit"]) <= 512
    assert all(re.fullmatch(r"127\.0\.0\.1:[\d-]+:\d+", port) for port in service.get("ports", [])), "loopback only"
    # The image of this repository, or a version with all its numbers.
    assert service["image"] == "weir" or re.search(r":v?\d+\.\d+\.\d+(-alpine)?$", service["image"])
    assert not {"privileged", "network_mode", "pid", "cap_add"} & set(service)
    for inside, here in mounts(service).items():
        assert here.exists() and here.is_relative_to(ROOT), inside


@pytest.mark.parametrize(("file", "name"), ALL)
def test_services_are_checked_and_wait_for_each_other(file, name):
    service = FILES[file][name]
    check = service["healthcheck"]
    # `load` has no port.
    assert check.get("disable") is True if name == "load" else check["test"][0] == "CMD"
    for other, condition in service.get("depends_on", {}).items():
        assert condition == {"condition": "service_healthy"}
        assert "test" in FILES[file][other]["healthcheck"]


def test_services_without_a_build_use_the_image_of_another():
    for services in FILES.values():
        ours = [service for service in services.values() if service["image"] == "weir"]
        contexts = {service["build"] for service in ours if "build" in service}
        assert {(FOLDER / context / "Dockerfile").resolve() for context in contexts} == {ROOT / "Dockerfile"}
        assert all("build" in service or service["pull_policy"] == "never" for service in ours)


def test_every_instance_has_an_admin_port():
    (ports,) = SERVICES["weir"]["ports"]
    first, last = re.search(r":(\d+)-(\d+):6070$", ports).groups()
    assert int(last) - int(first) + 1 == SERVICES["weir"]["deploy"]["replicas"]


@pytest.mark.parametrize("file", FILES)
def test_the_commands_exist(file):
    for service in FILES[file].values():
        if service["image"] != "weir":
            continue
        words = [service["command"][0]]
        if "test" in service["healthcheck"]:
            assert service["healthcheck"]["test"][:2] == ["CMD", "/bin/weir"], "the image has no shell"
            words.append(service["healthcheck"]["test"][2])
        for word in words:
            run = subprocess.run([WEIR, word, "--help"], capture_output=True, text=True)
            assert run.returncode == 0, run.stderr


def settings(file):
    """The settings of the service weir, from its file or its variables."""
    service = FILES[file]["weir"]
    if "environment" not in service:
        return yaml.safe_load(mounts(service)["/etc/weir.yaml"].read_text())
    found = {}
    for name, value in service["environment"].items():
        section, key = name.removeprefix("WEIR__").lower().split("__")
        found.setdefault(section, {})[key] = value
    return found


@pytest.mark.parametrize("file", FILES)
def test_weir_check_accepts_the_settings_and_the_rules(file, tmp_path):
    service = FILES[file]["weir"]
    rules = mounts(service)["/rules"]
    config = json.dumps(settings(file)).replace('"/rules"', json.dumps(str(rules)))
    (tmp_path / "weir.yaml").write_text(config)
    command = [WEIR, "check", "--config", tmp_path / "weir.yaml", rules]
    run = subprocess.run(command, capture_output=True, text=True, env={})
    assert run.returncode == 0, run.stdout + run.stderr


@pytest.mark.parametrize("file", FILES)
def test_the_memory_limit_fits_the_settings(file):
    """The chart computes what these settings need."""
    found = settings(file)
    bounds = {"store": "max_counters", "grpc": "max_client_memory", "http": "max_connections", "rlqs": "max_buckets"}
    sets = [f"settings.{section}.{key}={found[section][key]}" for section, key in bounds.items()]
    needed = container("default", *sets)["resources"]["limits"]["memory"]
    assert mib(needed) <= mib(FILES[file]["weir"]["mem_limit"]), needed


@pytest.mark.parametrize("file", FILES)
def test_a_stop_waits_for_the_drain(file):
    drain = {"delay": "5s", "timeout": "30s"} | settings(file)["drain"]
    seconds = sum(int(text.removesuffix("s")) for text in drain.values())
    assert FILES[file]["weir"]["stop_grace_period"] == f"{seconds + 5}s"


def test_the_fallback_divides_by_the_instances():
    assert settings("compose")["fallback"]["instances"] == SERVICES["weir"]["deploy"]["replicas"]


def test_the_page_names_what_exists():
    page = (FOLDER / "README.md").read_text()
    published = {port.split(":")[1].split("-")[0] for service in SERVICES.values() for port in service.get("ports", [])}
    opened = set(re.findall(r"`http://localhost:(\d+)/", page))
    assert opened == published
    assert set(re.findall(r"\]\((\w+\.yaml)\)", page)) == {"compose.yaml", "memory.yaml", "weir.yaml"}
    assert settings("compose")["admin"]["token"] == settings("memory")["admin"]["token"] == "try-it"
    assert f"{mib(SERVICES['weir']['mem_limit'])} MiB" in page
