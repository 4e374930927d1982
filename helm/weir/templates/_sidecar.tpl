{{/* `kind: Sidecar`: parts of a pod of another chart, which has this chart as a dependency and passes
     `.Subcharts.weir` (Helm 3.7 or newer). docs/operate/helm.md has an example. */}}

{{/* Entries of the pod's `initContainers`: the check, and weir as a native sidecar if Kubernetes has them. */}}
{{- define "weir.sidecar.initContainers" -}}
{{- include "weir.refuseWithoutSidecar" . -}}
{{- if .Values.checkRules -}}
- {{ include "weir.checkContainer" . | nindent 2 | trim }}
{{- end }}
{{- if include "weir.hasNativeSidecars" . }}
- {{ include "weir.container" . | nindent 2 | trim }}
  restartPolicy: Always
{{- end }}
{{- end -}}

{{/* Entries of the pod's `containers`: weir if Kubernetes has no native sidecars, else nothing. */}}
{{- define "weir.sidecar.containers" -}}
{{- include "weir.refuseWithoutSidecar" . -}}
{{- if not (include "weir.hasNativeSidecars" .) -}}
- {{ include "weir.container" . | nindent 2 | trim }}
{{- end -}}
{{- end -}}

{{/* Entries of the pod's `volumes`. */}}
{{- define "weir.sidecar.volumes" -}}
{{- include "weir.refuseWithoutSidecar" . -}}
{{- include "weir.volumes" . -}}
{{- end -}}

{{/* Labels of the pod, which the PodMonitor selects. */}}
{{- define "weir.sidecar.podLabels" -}}
weir.dev/sidecar: {{ include "weir.fullname" . }}
{{- end -}}

{{/* Annotations of the pod: changed settings replace the pods. The chart of the application may have
     `checksum/settings` too. */}}
{{- define "weir.sidecar.podAnnotations" -}}
{{- include "weir.checksums" . | replace "checksum/" "weir.dev/checksum-" -}}
{{- end -}}

{{- define "weir.refuseWithoutSidecar" -}}
{{- if ne .Values.kind "Sidecar" -}}
{{- fail (printf "\n\nthe templates weir.sidecar.* need kind: Sidecar in the values of weir, which have kind: %s" .Values.kind) -}}
{{- end -}}
{{- end -}}

{{/* Not empty if an init container with `restartPolicy: Always` is a sidecar: by default since Kubernetes 1.29. */}}
{{- define "weir.hasNativeSidecars" -}}
{{- if semverCompare ">=1.29-0" .Capabilities.KubeVersion.Version }}true{{ end -}}
{{- end -}}

{{/* gRPC and HTTP listen on the loopback of the pod, which the kubelet cannot reach. `weir health` runs in the
     container instead. It fails during a drain, so it is no liveness probe. */}}
{{- define "weir.sidecarPortsAndProbes" -}}
{{- $health := printf "[/bin/weir, health, --addr=127.0.0.1:%d, --timeout=1000]" (int .Values.sidecar.ports.grpc) -}}
{{- if .Values.metrics.enabled }}
ports:
  - { name: weir-metrics, containerPort: {{ .Values.sidecar.ports.metrics }}, protocol: TCP }
{{- end }}
startupProbe:
  exec: { command: {{ $health }} }
  {{- toYaml .Values.sidecar.startupProbe | nindent 2 }}
readinessProbe:
  exec: { command: {{ $health }} }
  {{- toYaml .Values.sidecar.readinessProbe | nindent 2 }}
{{- end -}}

{{/* The security context of a container. A sidecar also gets what the pod of this chart has for all containers. */}}
{{- define "weir.containerSecurity" -}}
{{- $security := .Values.securityContext -}}
{{- if eq .Values.kind "Sidecar" -}}
{{- $ofPod := pick .Values.podSecurityContext "runAsNonRoot" "runAsUser" "runAsGroup" "seccompProfile" "seLinuxOptions" -}}
{{- $security = merge (dict) $security $ofPod -}}
{{- end -}}
{{- toYaml $security -}}
{{- end -}}
