"""What helm prints after an installation: the address, the next commands, and the risks of the values."""

import shutil

import pytest
import yaml

from chart import CHART, template


def notes(folder, case, *sets):
    """helm prints them on installation only; rendered here as a text of an object."""
    shutil.copytree(CHART, folder / "weir")
    shutil.move(folder / "weir" / "templates" / "NOTES.txt", folder / "weir" / "notes.txt")
    note = "kind: Notes\ntext: |\n{{ tpl (.Files.Get \"notes.txt\") . | indent 2 }}\n"
    (folder / "weir" / "templates" / "notes.yaml").write_text(note)
    run = template(case, sets, chart=folder / "weir")
    assert run.returncode == 0, run.stderr
    (text,) = [found["text"] for found in yaml.safe_load_all(run.stdout) if found and found["kind"] == "Notes"]
    return text


NO_RULES = "There are no rules yet"
HEADLESS = "rel-weir-headless.ns.svc.cluster.local:8081"
OUTSIDE = "reachable from outside the cluster"
SEPARATE, TRIAL, UNKNOWN = "WARNING: store is memory", "WARNING: trialRedis is for trials only", "WARNING: the chart does not know"
RISKS = [NO_RULES, HEADLESS, OUTSIDE, SEPARATE, TRIAL, UNKNOWN]


@pytest.mark.parametrize(("case", "sets", "expected"), [
    ("default", [], [NO_RULES, HEADLESS]),
    ("default", ["replicaCount=2"], [NO_RULES, HEADLESS, SEPARATE]),
    ("default", ['rules={"a.yaml":"domain: a"}', "service.headless.enabled=false"], []),
    ("daemonset", [], [NO_RULES, HEADLESS]),
    ("redis", ['kind="DaemonSet"', "replicaCount=1", "podDisruptionBudget.enabled=false"], [NO_RULES, HEADLESS, UNKNOWN]),
    ("daemonset-memory", [], [NO_RULES, HEADLESS, SEPARATE]),
    ("trial-redis", [], [NO_RULES, HEADLESS, TRIAL]),
    ("node-port", [], [NO_RULES, HEADLESS]),
    ("load-balancer", [], [NO_RULES, HEADLESS, OUTSIDE]),
    ("sidecar", [], [UNKNOWN]),
])
def test_the_notes_name_the_risks_of_the_values(case, sets, expected, tmp_path):
    text = notes(tmp_path, case, *sets)
    assert [risk for risk in RISKS if risk in text] == expected, text


@pytest.mark.parametrize(("case", "words"), [
    ("default", ["rel-weir.ns.svc.cluster.local:8081\n", "helm test rel -n ns", "port-forward deployment/rel-weir 6070"]),
    ("daemonset", ["8081, by the pod on the node of the caller", "port-forward daemonset/rel-weir 6070"]),
    ("tls", ["rel-weir.ns.svc.cluster.local:8081 (TLS)"]),
    ("sidecar", ["127.0.0.1:8081 of these pods"]),
])
def test_the_notes_name_the_address_and_commands(case, words, tmp_path):
    text = notes(tmp_path, case)
    assert all(word in text for word in words), text
    assert ("helm test" in text) == (case != "sidecar")
