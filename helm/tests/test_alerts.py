"""Alerts and dashboard: valid PromQL, texts for the reader of an alert, and the form in which the chart installs both.

tests/redis/alerts.rs checks against a running weir that their metrics exist.
"""

import json
import re

import promql_parser
import pytest
import yaml

from chart import CHART, ROOT, one, refused

RULES = CHART / "files" / "alerts.yaml"
ALERTS = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_an_alert_has_valid_promql_and_annotations(alert):
    promql_parser.parse(alert["expr"])
    assert alert["alert"].startswith("Weir")
    assert alert["labels"]["severity"] in {"critical", "warning", "info"}
    assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}
    page, _, heading = alert["annotations"]["runbook_url"].partition("#")
    assert page == "https://github.com/weir-rs/weir/blob/main/docs/operate/alerts.md" and heading == alert["alert"].lower()


def test_every_alert_has_a_section_and_every_section_an_alert():
    sections = re.findall(r"^## (\w+)\n\n(\w+): ", (ROOT / "docs" / "operate" / "alerts.md").read_text(), re.MULTILINE)
    assert sorted(sections) == sorted((alert["alert"], alert["labels"]["severity"]) for alert in ALERTS)


def test_alert_names_are_unique():
    names = [alert["alert"] for alert in ALERTS]
    assert len(names) == len(set(names))


def test_every_section_is_a_runbook():
    _, *sections = re.split(r"^## ", (ROOT / "docs" / "operate" / "alerts.md").read_text(), flags=re.MULTILINE)
    for section in sections:
        parts = re.findall(r"^- \*\*(.+?):\*\* ", section, re.MULTILINE)
        assert parts == ["Fires", "First check", "Causes", "Do", "Ends"], section


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert["alert"])
def test_a_section_has_the_time_for_which_the_expression_must_hold(alert):
    page = (ROOT / "docs" / "operate" / "alerts.md").read_text()
    start = f"after {alert['for']} " if "for" in alert else "at once, "
    section = page.split(f"## {alert['alert']}\n", 1)[1].split("\n## ", 1)[0]
    assert f"- **Fires:** {start}" in section


@pytest.mark.parametrize("page, least", [("alerts", 10), ("watch", 10), ("upgrading", 1)])
def test_every_expression_of_a_page_is_valid(page, least):
    text = (ROOT / "docs" / "operate" / f"{page}.md").read_text()
    expressions = re.findall(r"`((?:sum|min|max|count|topk|histogram_quantile)\b[^`]*\([^`]*)`", text)
    assert len(expressions) >= least
    for expression in expressions:
        promql_parser.parse(expression)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_every_query_of_a_panel_is_valid(panel):
    assert panel["targets"], "a panel without a query"
    for target in panel["targets"]:
        promql_parser.parse(target["expr"].replace("$__rate_interval", "5m"))
        assert 'namespace=~"$namespace",job=~"$job"' in target["expr"], "every panel follows the variables"


def test_panel_ids_are_unique_and_panels_do_not_overlap():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24 and not cells & taken, panel["title"]
        taken |= cells


def test_the_chart_installs_both_unchanged():
    found = json.loads(one("ConfigMap", "observed", suffix="-dashboard")["data"]["weir.json"])
    assert found == DASHBOARD
    labels = one("ConfigMap", "observed", suffix="-dashboard")["metadata"]["labels"]
    assert labels["grafana_dashboard"] == "1"
    groups = one("PrometheusRule", "observed")["spec"]["groups"]
    installed = {rule["alert"]: rule for group in groups for rule in group["rules"]}
    assert installed.pop("Ours") and len(installed) == len(ALERTS) - 1, "one is disabled"
    for alert in ALERTS:
        if alert["alert"] != "WeirMemoryFull":
            expected = {**alert, "labels": {**alert["labels"], "team": "edge"}}
            assert installed[alert["alert"]] == expected


def installed(*sets):
    groups = one("PrometheusRule", "observed", *sets)["spec"]["groups"]
    return {rule["alert"]: rule for group in groups for rule in group["rules"]}


@pytest.mark.parametrize(("url", "expected"), [
    ("https://wiki.example.com/weir", "https://wiki.example.com/weir#weirslow"),
    ("https://wiki.example.com/{alert}.html", "https://wiki.example.com/WeirSlow.html"),
])
def test_the_runbook_is_the_page_of_the_values(url, expected):
    found = installed(f'metrics.prometheusRule.runbookUrl="{url}"')
    assert found["WeirSlow"]["annotations"]["runbook_url"] == expected
    urls = [rule["annotations"]["runbook_url"] for name, rule in found.items() if name != "Ours"]
    assert len(set(urls)) == len(ALERTS) - 1 and "annotations" not in found["Ours"]


def test_the_default_runbook_is_the_page_of_the_file():
    chart = yaml.safe_load((CHART / "values.yaml").read_text())
    page = chart["metrics"]["prometheusRule"]["runbookUrl"]
    assert {alert["annotations"]["runbook_url"].partition("#")[0] for alert in ALERTS} == {page}
    assert (ROOT / page.partition("/main/")[2]).exists()


def test_a_runbook_is_an_address():
    for url in ("", "wiki", "https://wiki.example.com/weir#alerts"):
        assert "runbookUrl" in refused(f'metrics.prometheusRule.runbookUrl="{url}"')


def test_objects_and_alerts_have_the_annotations_of_the_values():
    sets = ['metrics.prometheusRule.alertAnnotations={"dashboard":"https://grafana.example.com/d/weir"}']
    sets += ['metrics.prometheusRule.annotations={"example.com/owner":"edge"}']
    assert one("PrometheusRule", "observed", *sets)["metadata"]["annotations"] == {"example.com/owner": "edge"}
    found = installed(*sets)["WeirSlow"]["annotations"]
    assert found["dashboard"] == "https://grafana.example.com/d/weir" and "summary" in found
    dashboard = one("ConfigMap", "observed", suffix="-dashboard")["metadata"]
    assert dashboard["annotations"] == {"grafana_folder": "Edge"}
