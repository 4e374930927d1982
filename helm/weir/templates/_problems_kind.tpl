{{/* Values that do not fit the kind of the workload. Each line is a problem. */}}

{{- define "weir.kindProblems" -}}
{{- $values := .Values -}}
{{- $kind := $values.kind -}}
{{- if ne $kind "Deployment" -}}
{{- $where := ternary "has one pod on each node" "runs in the pods of the application" (eq $kind "DaemonSet") -}}
{{- $pod := ternary "each node" "each pod" (eq $kind "DaemonSet") -}}
{{- if and (eq $values.store "memory") (not $values.allowPerPodLimits) }}
kind: {{ $kind }} with store: memory: {{ $pod }} would admit the whole limit; set store: redis, or accept that with allowPerPodLimits: true
{{- end }}
{{- if and (eq $values.store "redis") (eq (get ($values.settings.fallback | default dict) "on_error" | toString) "local") (not (hasKey ($values.settings.fallback | default dict) "instances")) }}
settings.fallback.on_error: local needs settings.fallback.instances with kind: {{ $kind }}, because the chart does not know the number of pods, by which weir divides a limit
{{- end }}
{{- if ne (int $values.replicaCount) 1 }}
replicaCount: {{ $values.replicaCount }} needs kind: Deployment; kind: {{ $kind }} {{ $where }}
{{- end }}
{{- range list "autoscaling" "keda" }}
{{- if get (get $values .) "enabled" }}
{{ . }}.enabled needs kind: Deployment; kind: {{ $kind }} {{ $where }}
{{- end }}
{{- end }}
{{- if $values.podDisruptionBudget.enabled }}
podDisruptionBudget.enabled needs kind: Deployment; {{ ternary "a drain of a node does not evict pods of a DaemonSet" "the chart of the application has the budget of its pods" (eq $kind "DaemonSet") }}
{{- end }}
{{- if $values.topologySpreadConstraints }}
topologySpreadConstraints need kind: Deployment; kind: {{ $kind }} {{ $where }}
{{- end }}
{{- end }}
{{- if eq $kind "Sidecar" }}
{{- if $values.tls.enabled }}
tls.enabled does not apply to kind: Sidecar, which serves only the loopback of its pod
{{- end }}
{{- if $values.networkPolicy.enabled }}
networkPolicy.enabled does not apply to kind: Sidecar; the chart of the application has the policy of its pods
{{- end }}
{{- if $values.metrics.serviceMonitor.enabled }}
metrics.serviceMonitor.enabled does not apply to kind: Sidecar, which has no Service; use metrics.podMonitor
{{- end }}
{{- range list "initContainers" "sidecars" }}
{{- if get $values . }}
{{ . }}: they do not apply to kind: Sidecar; the chart of the application has its containers
{{- end }}
{{- end }}
{{- $ports := values $values.sidecar.ports }}
{{- if ne (len $ports) (len (uniq $ports)) }}
sidecar.ports: two of them are equal, but every listener needs its own port
{{- end }}
{{- end }}
{{- end -}}
