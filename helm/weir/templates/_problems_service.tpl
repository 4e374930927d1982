{{/* Values of the Service that the API server would refuse, or that would have no effect. Each line is a problem. */}}

{{- define "weir.serviceProblems" -}}
{{- $service := .Values.service -}}
{{- $type := $service.type -}}
{{- $exposed := $service.exposedPorts -}}
{{- $nodePorts := list -}}
{{- range $name := keys $service.nodePorts | sortAlpha }}
{{- $port := get $service.nodePorts $name }}
{{- if $port }}
{{- if eq $type "ClusterIP" }}
service.nodePorts.{{ $name }} needs service.type: NodePort or LoadBalancer
{{- else if eq (toString $service.allocateLoadBalancerNodePorts) "false" }}
service.nodePorts.{{ $name }} needs service.allocateLoadBalancerNodePorts: true or null
{{- else if not (has $name (include "weir.servicePorts" $ | fromJsonArray)) }}
service.nodePorts.{{ $name }}: the Service has no port of this name; see service.exposedPorts and metrics.enabled
{{- end }}
{{- if has (int $port) $nodePorts }}
service.nodePorts: {{ int $port }} occurs twice
{{- end }}
{{- $nodePorts = append $nodePorts (int $port) }}
{{- end }}
{{- end }}
{{- $ports := list }}
{{- range $exposed }}{{ $ports = append $ports (get $service.ports . | int) }}{{ end }}
{{- if ne (len $ports) (len (uniq $ports)) }}
service.ports: two exposed ports are equal
{{- end }}
{{- if ne $type "LoadBalancer" }}
{{- range list "loadBalancerClass" "loadBalancerSourceRanges" }}
{{- if get $service . }}
service.{{ . }} needs service.type: LoadBalancer
{{- end }}
{{- end }}
{{- if not (kindIs "invalid" $service.allocateLoadBalancerNodePorts) }}
service.allocateLoadBalancerNodePorts needs service.type: LoadBalancer
{{- end }}
{{- end }}
{{- if and $service.externalTrafficPolicy (eq $type "ClusterIP") }}
service.externalTrafficPolicy needs service.type: NodePort or LoadBalancer
{{- end }}
{{- if and $service.healthCheckNodePort (not (and (eq $type "LoadBalancer") (eq $service.externalTrafficPolicy "Local"))) }}
service.healthCheckNodePort needs service.type: LoadBalancer and service.externalTrafficPolicy: Local
{{- end }}
{{- if and (eq $service.internalTrafficPolicy "Local") $service.trafficDistribution }}
service.trafficDistribution has no effect with service.internalTrafficPolicy: Local
{{- end }}
{{- if and (eq $service.clusterIP "None") (ne $type "ClusterIP") }}
service.clusterIP: None needs service.type: ClusterIP
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not (has "metrics" $exposed)) }}
metrics.serviceMonitor.enabled needs the port metrics in service.exposedPorts; metrics.podMonitor does not
{{- end }}
{{- end -}}
