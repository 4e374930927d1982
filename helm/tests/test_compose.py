"""examples/compose: its form, and commands that the binary has. tests/redis/compose.rs runs its services."""

import re
import subprocess

import jsonschema
import yaml

from chart import ROOT, WEIR
from custom import NUMBER, TEXT, TEXTS, closed

FOLDER = ROOT / "examples" / "compose"
SERVICES = yaml.safe_load((FOLDER / "compose.yaml").read_text())["services"]

# The fields of the Compose specification that the example uses. A field that is not here is refused.
SECONDS = {"type": "string", "pattern": "^[0-9]+s$"}
PORTS = {"type": "array", "items": {"type": "string", "pattern": r"^127\.0\.0\.1:\d+(-\d+)?:\d+$"}}
SERVICE = closed(
    {"image"}, image=TEXT, build=TEXT, command=TEXTS, ports=PORTS, volumes=TEXTS, stop_grace_period=SECONDS,
    environment={"type": "object", "additionalProperties": TEXT},
    deploy=closed(replicas=NUMBER),
    healthcheck=closed({"test"}, test=TEXTS, interval=SECONDS, timeout=SECONDS, retries=NUMBER),
    depends_on={"type": "object", "additionalProperties": closed(condition={"const": "service_healthy"})},
)


def test_every_service_has_the_form_of_compose():
    for service in SERVICES.values():
        jsonschema.validate(service, SERVICE)
    waited_for = {name for service in SERVICES.values() for name in service.get("depends_on", {})}
    assert waited_for == {"valkey", "weir"}
    assert all("healthcheck" in SERVICES[name] for name in waited_for)


def test_the_build_context_has_the_dockerfile():
    assert (FOLDER / SERVICES["weir"]["build"] / "Dockerfile").resolve() == ROOT / "Dockerfile"


def test_every_instance_has_an_admin_port():
    (ports,) = SERVICES["weir"]["ports"]
    first, last = re.search(r":(\d+)-(\d+):6070$", ports).groups()
    assert int(last) - int(first) + 1 == SERVICES["weir"]["deploy"]["replicas"]


def test_the_commands_exist():
    words = [SERVICES["weir"]["command"][0], SERVICES["weir"]["healthcheck"]["test"][2]]
    assert words == ["serve", "health"]
    assert SERVICES["weir"]["healthcheck"]["test"][:2] == ["CMD", "/bin/weir"], "the image has no shell"
    for word in words:
        run = subprocess.run([WEIR, word, "--help"], capture_output=True, text=True)
        assert run.returncode == 0, run.stderr
