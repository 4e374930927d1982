"""Prometheus and Grafana of examples/compose: valid files, which fit one another, the chart's alerts and its dashboard."""

import json
import re
import shutil
import subprocess

import jsonschema
import yaml

from chart import CHART
from custom import DURATION, NUMBER, TEXT, TEXTS, closed, listed
from test_compose import FOLDER, SERVICES, mounts, settings

PROMETHEUS = yaml.safe_load((FOLDER / "prometheus.yaml").read_text())
DATASOURCES = yaml.safe_load((FOLDER / "grafana" / "datasource.yaml").read_text())
DASHBOARDS = yaml.safe_load((FOLDER / "grafana" / "dashboards.yaml").read_text())
DASHBOARD = json.loads((CHART / "files" / "dashboard.json").read_text())

# The fields that the files use, from the documentation of both programs. A field that is not here is refused.
FLAG = {"type": "boolean"}
SCRAPE = closed(
    {"job_name", "dns_sd_configs"},
    job_name=TEXT,
    dns_sd_configs=listed(closed({"names", "port"}, names=TEXTS, type={"enum": ["A", "AAAA", "SRV"]}, port=NUMBER,
                                 refresh_interval=DURATION)),
    relabel_configs=listed(closed({"target_label"}, target_label=TEXT, replacement=TEXT, regex=TEXT, source_labels=TEXTS)),
)
PROMETHEUS_FORM = closed(
    {"scrape_configs"},
    **{"global": closed(scrape_interval=DURATION, evaluation_interval=DURATION)},
    rule_files=TEXTS, scrape_configs=listed(SCRAPE),
)
DATASOURCES_FORM = closed(
    {"apiVersion", "datasources"},
    apiVersion={"const": 1},
    datasources=listed(closed({"name", "type", "access", "url"}, name=TEXT, uid=TEXT, type=TEXT, access={"const": "proxy"},
                              url=TEXT, isDefault=FLAG, jsonData=closed(timeInterval=DURATION))),
)
DASHBOARDS_FORM = closed(
    {"apiVersion", "providers"},
    apiVersion={"const": 1},
    providers=listed(closed({"name", "type", "options"}, name=TEXT, type={"const": "file"}, disableDeletion=FLAG,
                            allowUiUpdates=FLAG, options=closed({"path"}, path=TEXT))),
)


def test_the_files_have_known_fields_only():
    jsonschema.validate(PROMETHEUS, PROMETHEUS_FORM)
    jsonschema.validate(DATASOURCES, DATASOURCES_FORM)
    jsonschema.validate(DASHBOARDS, DASHBOARDS_FORM)


def test_prometheus_finds_its_rules(tmp_path):
    """In a folder as in the container. promtool checks it too where it is installed (Debian: prometheus)."""
    for inside, here in mounts(SERVICES["prometheus"]).items():
        assert inside.startswith("/etc/prometheus/")
        shutil.copy(here, tmp_path / inside.rpartition("/")[2])
    (alerts,) = PROMETHEUS["rule_files"]
    assert (tmp_path / alerts).read_text() == (CHART / "files" / "alerts.yaml").read_text()
    flags = dict(flag.removeprefix("--").split("=") for flag in SERVICES["prometheus"]["command"])
    config = tmp_path / flags["config.file"].rpartition("/")[2]
    assert flags["config.file"] in mounts(SERVICES["prometheus"]) and config.exists()
    if promtool := shutil.which("promtool"):
        run = subprocess.run([promtool, "check", "config", config], capture_output=True, text=True)
        assert run.returncode == 0, run.stdout + run.stderr


def test_prometheus_scrapes_every_weir_on_its_port_of_metrics():
    (scrape,) = PROMETHEUS["scrape_configs"]
    (targets,) = scrape["dns_sd_configs"]
    (name,) = targets["names"]
    assert name in SERVICES
    assert settings("compose")["metrics"]["listen"] == f"0.0.0.0:{targets['port']}"


def test_samples_have_the_labels_of_the_dashboard_and_the_alerts():
    """Those that Prometheus adds on Kubernetes: weir's own labels are checked by tests/redis/alerts.rs."""
    texts = (CHART / "files" / "dashboard.json").read_text() + (CHART / "files" / "alerts.yaml").read_text()
    used = {label for label in ("namespace", "job", "pod") if re.search(rf"\b{label}\b", texts)}
    (scrape,) = PROMETHEUS["scrape_configs"]
    assert used - {"job"} == {rule["target_label"] for rule in scrape["relabel_configs"]}
    # Addresses of instances, without the port.
    (pod,) = [rule for rule in scrape["relabel_configs"] if rule["target_label"] == "pod"]
    assert re.fullmatch(pod["regex"], "172.18.0.3:9090")[1] == "172.18.0.3"


def test_grafana_shows_the_dashboard_of_the_chart():
    """The file itself, not a copy."""
    found = mounts(SERVICES["grafana"])
    (path,) = [inside for inside, here in found.items() if here == (CHART / "files" / "dashboard.json").resolve()]
    (provider,) = DASHBOARDS["providers"]
    assert path.rpartition("/")[0] == provider["options"]["path"]
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] == path
    folders = {here.name: inside.rpartition("/")[0] for inside, here in found.items()}
    assert folders["datasource.yaml"] == "/etc/grafana/provisioning/datasources"
    assert folders["dashboards.yaml"] == "/etc/grafana/provisioning/dashboards"


def uids(value):
    """The data sources that the dashboard names."""
    if isinstance(value, dict):
        if "datasource" in value and isinstance(value["datasource"], dict):
            yield value["datasource"]["uid"], value["datasource"]["type"]
        for below in value.values():
            yield from uids(below)
    elif isinstance(value, list):
        for below in value:
            yield from uids(below)


def test_the_dashboard_uses_the_data_source():
    """Through its variable, whose first value is the default data source of that type."""
    (source,) = DATASOURCES["datasources"]
    (variable,) = [it for it in DASHBOARD["templating"]["list"] if it["type"] == "datasource"]
    assert set(uids(DASHBOARD)) == {(f"${{{variable['name']}}}", source["type"])}
    assert variable["query"] == source["type"] and source["isDefault"] is True
    assert variable.get("current", {}).get("value", source["uid"]) == source["uid"]
    host, port = re.fullmatch(r"http://(\w+):(\d+)", source["url"]).groups()
    assert SERVICES[host]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert source["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]
