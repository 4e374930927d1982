"""The fields that the chart uses of custom objects, for which Kubernetes has no schema.

Written from their APIs' documentation; a field that is not here is refused, so a misspelt one is.
"""

TEXT, NUMBER, TEXTS = {"type": "string"}, {"type": "integer"}, {"type": "array", "items": {"type": "string"}}
DURATION = {"type": "string", "pattern": "^([0-9]+(ms|s|m|h))+$"}
LABELS = {"type": "object", "additionalProperties": TEXT}
SELECTOR = {"type": "object", "additionalProperties": False, "required": ["matchLabels"],
            "properties": {"matchLabels": LABELS}}


def closed(required=(), **properties):
    required = sorted(required)
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def listed(item, least=1):
    return {"type": "array", "minItems": least, "items": item}


RELABELING = closed(action=TEXT, regex=TEXT, sourceLabels=TEXTS, targetLabel=TEXT, replacement=TEXT)
ENDPOINT = closed(
    {"port"}, port=TEXT, path=TEXT, interval=DURATION, scrapeTimeout=DURATION, scheme={"enum": ["http", "https"]},
    tlsConfig=closed(insecureSkipVerify={"type": "boolean"}, serverName=TEXT, ca={"type": "object"}),
    relabelings=listed(RELABELING), metricRelabelings=listed(RELABELING),
)
MONITOR = dict(jobLabel=TEXT, sampleLimit=NUMBER, namespaceSelector=closed(matchNames=TEXTS), selector=SELECTOR)
ALERT = closed({"alert", "expr"}, alert=TEXT, expr=TEXT, labels=LABELS, annotations=LABELS, **{"for": DURATION})

SPECS = {
    ("monitoring.coreos.com/v1", "ServiceMonitor"):
        closed({"selector", "endpoints"}, endpoints=listed(ENDPOINT), **MONITOR),
    ("monitoring.coreos.com/v1", "PodMonitor"):
        closed({"selector", "podMetricsEndpoints"}, podMetricsEndpoints=listed(ENDPOINT), **MONITOR),
    ("monitoring.coreos.com/v1", "PrometheusRule"):
        closed({"groups"}, groups=listed(closed({"name", "rules"}, name=TEXT, interval=DURATION, rules=listed(ALERT)))),
    ("keda.sh/v1alpha1", "ScaledObject"): closed(
        {"scaleTargetRef", "triggers"},
        scaleTargetRef=closed({"name"}, apiVersion=TEXT, kind=TEXT, name=TEXT),
        minReplicaCount=NUMBER, maxReplicaCount=NUMBER, pollingInterval=NUMBER, cooldownPeriod=NUMBER,
        fallback=closed({"failureThreshold", "replicas"}, failureThreshold=NUMBER, replicas=NUMBER),
        advanced={"type": "object"},
        triggers=listed(closed({"type", "metadata"}, type=TEXT, name=TEXT, metricType=TEXT, metadata=LABELS)),
    ),
    ("cert-manager.io/v1", "Certificate"): closed(
        {"secretName", "issuerRef"},
        secretName=TEXT, duration=DURATION, renewBefore=DURATION, usages=TEXTS, dnsNames=listed(TEXT),
        privateKey=closed(algorithm=TEXT, size=NUMBER, rotationPolicy=TEXT),
        issuerRef=closed({"name"}, name=TEXT, kind=TEXT, group=TEXT),
    ),
}


def schema(found):
    """The schema of an object, or none if SPECS has none for its kind."""
    spec = SPECS.get((found["apiVersion"], found["kind"]))
    metadata = closed({"name"}, name=TEXT, namespace=TEXT, labels=LABELS, annotations=LABELS)
    return spec and closed({"spec"}, apiVersion=TEXT, kind=TEXT, metadata=metadata, spec=spec)
