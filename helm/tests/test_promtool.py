"""Prometheus' own tool on the alerts: it accepts them, and each fires on its cause, after its time, with its texts."""

import os
import re
import subprocess
from pathlib import Path

import yaml

from chart import CHART, ROOT, one

PROMTOOL = Path(os.environ.get("PROMTOOL", ROOT / "target" / "helm" / "promtool"))
FILE = CHART / "files" / "alerts.yaml"
ALERTS = {rule["alert"]: rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]}
CASES = yaml.safe_load((Path(__file__).parent / "alert_cases.yaml").read_text())
TARGET = {"namespace": "ns", "job": "weir", "pod": "weir-0"}


def promtool(*words):
    run = subprocess.run([PROMTOOL, *words], capture_output=True, text=True)
    return run.returncode, run.stdout + run.stderr


def series(name):
    """A series of a case, with the labels that Prometheus adds to each sample."""
    metric, _, labels = name.rstrip("}").partition("{")
    missing = [f'{key}="{value}"' for key, value in TARGET.items() if not re.search(rf"\b{key}=", labels)]
    return f"{metric}{{{','.join([labels, *missing]).strip(',')}}}"


def minutes(duration):
    return {"m": 1, "h": 60}[duration[-1]] * int(duration[:-1]) if duration else 0


def text(template, labels, shows):
    def shown(found):
        label = re.fullmatch(r"\$labels\.(\w+)", found[1])
        return labels[label[1]] if label else shows[found[1]]
    return re.sub(r"{{ (.+?) }}", shown, template)


def unit_test(case):
    """A case in promtool's form."""
    alert = ALERTS[case["alert"]]
    silent = {case["from"], case["from"] + max(0, minutes(alert.get("for")) - 1)}
    moments = [{"eval_time": f"{minute}m", "alertname": alert["alert"], "exp_alerts": []} for minute in sorted(silent)]
    if "fires" in case:
        labels = case.get("labels", {"namespace": "ns", "job": "weir"})
        shows = case.get("shows", {})
        expected = {
            "exp_labels": {**alert["labels"], **labels},
            "exp_annotations": {name: text(it, labels, shows) for name, it in alert["annotations"].items()},
        }
        moments.append({"eval_time": f"{case['fires']}m", "alertname": alert["alert"], "exp_alerts": [expected]})
    assert all(isinstance(values, str) for values in case["series"].values()), "YAML reads 0x10 as 16"
    samples = [{"series": series(name), "values": values} for name, values in case["series"].items()]
    return {"interval": "1m", "input_series": samples, "alert_rule_test": moments}


def run_unit_tests(folder, tests, rules=FILE):
    file = folder / "tests.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": tests}))
    return promtool("test", "rules", file)


def test_promtool_accepts_the_file():
    status, output = promtool("check", "rules", FILE)
    assert status == 0 and f"{len(ALERTS)} rules found" in output, output


def test_promtool_accepts_what_the_chart_installs(tmp_path):
    """With further labels, annotations and groups."""
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(one("PrometheusRule", "observed")["spec"]))
    status, output = promtool("check", "rules", tmp_path / "rules.yaml")
    assert status == 0, output


def test_every_alert_fires_on_its_cause(tmp_path):
    status, output = run_unit_tests(tmp_path, [unit_test(case) for case in CASES])
    assert status == 0 and "SUCCESS" in output, output


def test_every_alert_has_a_case_in_which_it_fires():
    assert {case["alert"] for case in CASES if "fires" in case} == set(ALERTS)


def test_a_wrong_expectation_fails(tmp_path):
    """Otherwise the tests above could pass without a rule."""
    case = next(case for case in CASES if case["alert"] == "WeirBreakerOpen")
    for wrong in ({"fires": 10}, {"labels": {"namespace": "ns", "job": "weir", "node": "redis-1:6379"}}, {"from": 15}):
        status, output = run_unit_tests(tmp_path, [unit_test({**case, **wrong})])
        assert status != 0 and "FAILED" in output, (wrong, output)
