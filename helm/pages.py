#!/usr/bin/env python3
"""Generates the tables in the chart's README and the settings in the chart's schema.

    helm/pages.py            writes both (`make helm-docs`)
    helm/pages.py --check    exits with 1 when one of them is not up to date
"""

import itertools
import json
import re
import sys
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent
CHART = ROOT / "helm" / "weir"
README, SCHEMA, VALUES = CHART / "README.md", CHART / "values.schema.json", CHART / "values.yaml"
WEIR_YAML = ROOT / "docs" / "reference" / "settings.schema.json"
MARK = "<!-- values: made by `make helm-docs` -->\n"

# Settings that the chart derives from other values, and settings for tests. `*` is the rest of a name.
DERIVED = [
    "grpc.listen", "grpc.tls_*", "http.listen", "admin.listen", "admin.token*", "metrics.listen", "metrics.path", "rules.paths",
    "rules.overlay_paths",
    "store.kind", "redis.url", "redis.username", "redis.password_file", "redis.key_secret",
    "redis.tls_*", "clock.*",
    # Secrets: by `extraEnv`.
    "tracing.headers", "metrics.otlp_headers",
]
# The chart reads these durations too, for the pod's grace period. It reads no fractions.
DURATION = {"type": "string", "pattern": "^(0|([0-9]+(ms|s|m|h|d))+)$"}
READ_BY_THE_CHART = {"drain.delay": DURATION, "drain.timeout": DURATION}


def is_derived(path):
    return any(path == d or d.endswith("*") and path.startswith(d[:-1]) for d in DERIVED)


def settings_schema():
    """The schema of `settings`: that of weir.yaml, without the settings that the chart derives."""
    sections = {}
    for section, schema in json.loads(WEIR_YAML.read_text())["properties"].items():
        keys = {
            key: {**setting, **READ_BY_THE_CHART.get(f"{section}.{key}", {})}
            for key, setting in schema["properties"].items()
            if not is_derived(f"{section}.{key}")
        }
        if keys:
            sections[section] = {"type": "object", "additionalProperties": False, "properties": keys}
    return {
        "type": "object",
        "additionalProperties": False,
        "description": "The settings of weir.yaml, without those that the chart derives.",
        "properties": sections,
    }


def values():
    """Every commented value of values.yaml: group, path, default, comment."""
    defaults = yaml.safe_load(VALUES.read_text())
    rows, group, path, comment = [], None, [], None
    for line in VALUES.read_text().splitlines():
        text = line.strip()
        if found := re.fullmatch(r"# === (.+) ===", text):
            group = found[1]
        elif text.startswith("# -- "):
            comment = text.removeprefix("# -- ")
        elif text.startswith("# ") and comment:
            comment += " " + text.removeprefix("# ")
        elif found := re.match(r"( *)(\w+):", line):
            path = path[: len(found[1]) // 2] + [found[2]]
            if comment:
                default = defaults
                for key in path:
                    default = default[key]
                rows.append((group, ".".join(path), default, comment))
            comment = None
    return rows


def tables():
    """A table for each group of values, under its heading."""
    lines = []
    for group, rows in itertools.groupby(values(), lambda row: row[0]):
        lines += [f"### {group}", "", "| value | default | meaning |", "| --- | --- | --- |"]
        for _, path, default, comment in rows:
            text = json.dumps(default).replace("|", "\\|")
            lines.append(f"| `{path}` | `{text}` | {comment} |")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def wanted():
    """The generated content of both files."""
    schema = json.loads(SCHEMA.read_text())
    schema["definitions"]["settings"] = settings_schema()
    before, mark, _ = README.read_text().partition(MARK)
    assert mark, f"{README} has lost the mark for its tables"
    return {SCHEMA: json.dumps(schema, indent=2) + "\n", README: before + mark + "\n" + tables()}


def main():
    old = [path for path, text in wanted().items() if path.read_text() != text]
    if "--check" in sys.argv:
        for path in old:
            print(f"{path.relative_to(ROOT)} is not up to date: run `make helm-docs`")
        return 1 if old else 0
    for path in old:
        path.write_text(wanted()[path])
        print(f"wrote {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
