{{/* What the Service derives from several values. Each takes the root. */}}

{{/* The ports of the Service: those that the values list, and that weir opens. */}}
{{- define "weir.servicePorts" -}}
{{- ternary .Values.service.exposedPorts (without .Values.service.exposedPorts "metrics") .Values.metrics.enabled | toJson -}}
{{- end -}}

{{/* With a pod on each node, proxies call the pod of their node, unless the values choose otherwise. */}}
{{- define "weir.internalTrafficPolicy" -}}
{{- $service := .Values.service -}}
{{- if $service.internalTrafficPolicy -}}
{{ $service.internalTrafficPolicy }}
{{- else if and (eq .Values.kind "DaemonSet") (not $service.trafficDistribution) -}}
Local
{{- end -}}
{{- end -}}
