"""The chart for tests: rendered by the real helm, parsed into objects."""

import json
import os
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "weir"
HELM = Path(os.environ.get("HELM", ROOT / "target" / "helm" / "helm"))
WEIR = Path(os.environ.get("WEIR", ROOT / "target" / "debug" / "weir"))

CASES = sorted(path.name.removesuffix("-values.yaml") for path in (CHART / "ci").iterdir())
# Those that have pods. The others are for pods of another chart.
WITH_PODS = [case for case in CASES if case != "sidecar"]
# The oldest Kubernetes that Chart.yaml allows, and the newest that we have schemas of.
OLDEST, NEWEST = "1.25", "1.37"


def helm(*args):
    return subprocess.run([HELM, *args], capture_output=True, text=True, cwd=ROOT)


def template(case, sets, version=NEWEST, chart=CHART):
    """helm template, with a values file of ci/ and ("drain.delay=\"5s\"", ...) on top, as JSON."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(nested(sets), file)
        file.flush()
        values = ["--values", CHART / "ci" / f"{case}-values.yaml", "--values", file.name]
        flags = ["--namespace", "ns", "--kube-version", version, "--api-versions", "autoscaling/v2"]
        return helm("template", "rel", chart, *flags, *values)


def nested(sets):
    values = {}
    for path, _, text in (word.partition("=") for word in sets):
        *sections, last = path.split(".")
        below = values
        for section in sections:
            below = below.setdefault(section, {})
        below[last] = json.loads(text)
    return values


@cache
def render(case="default", *sets, version=NEWEST):
    """The objects of a values file of ci/, with values on top."""
    run = template(case, sets, version)
    assert run.returncode == 0, run.stderr
    return [found for found in yaml.safe_load_all(run.stdout) if found]


def refused(*sets):
    """The errors of helm about these values. Places are paths with dots in some versions, with slashes in others."""
    run = template("default", sets)
    assert run.returncode != 0, f"{sets} was accepted"
    return run.stderr.replace("/", ".")


def every(kind, case="default", *sets):
    return [found for found in render(case, *sets) if found["kind"] == kind]


def one(kind, case="default", *sets, suffix=""):
    """The object of that kind whose name is the chart's, with a suffix."""
    names = [f"rel-weir{suffix}", f"limits{suffix}"]
    found = [o for o in every(kind, case, *sets) if o["metadata"]["name"] in names]
    assert len(found) == 1, f"{len(found)} of {kind} {names[0]} in {case}"
    return found[0]


def workload(case="default", *sets):
    """The Deployment or DaemonSet of weir."""
    kinds = {found["kind"] for found in render(case, *sets)}
    return one("DaemonSet" if "DaemonSet" in kinds else "Deployment", case, *sets)


def pod(case="default", *sets):
    """The pod template of weir."""
    return workload(case, *sets)["spec"]["template"]


def pods(case="default", *sets):
    """Every pod and pod template: of weir, of the trial Redis and of `helm test`."""
    owners = every("Deployment", case, *sets) + every("DaemonSet", case, *sets)
    return [found["spec"]["template"] for found in owners] + every("Pod", case, *sets)


def container(case="default", *sets):
    return pod(case, *sets)["spec"]["containers"][0]


def settings(case="default", *sets):
    """The parsed weir.yaml."""
    return yaml.safe_load(one("ConfigMap", case, *sets)["data"]["weir.yaml"])
