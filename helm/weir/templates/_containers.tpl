{{/* The containers of weir's image: the service and its check. _sidecar.tpl has the parts
     that differ in a pod of another chart. */}}

{{- define "weir.containerBase" -}}
image: {{ include "weir.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- include "weir.containerSecurity" . | nindent 2 }}
{{- end -}}

{{/* Variables of the service and of its check. */}}
{{- define "weir.containerEnv" -}}
{{- with include "weir.env" . }}
env:
  {{- . | trim | nindent 2 }}
{{- end }}
{{- with .Values.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* Before weir starts: are its settings, their files and its rules valid? */}}
{{- define "weir.checkContainer" -}}
name: {{ ternary "weir-check" "check" (eq .Values.kind "Sidecar") }}
{{ include "weir.containerBase" . }}
command: [/bin/weir]
args: [check, --config, /etc/weir/settings/weir.yaml]
{{- include "weir.containerEnv" . }}
resources:
  {{- toYaml .Values.checkResources | nindent 2 }}
volumeMounts:
  {{- include "weir.volumeMounts" . | nindent 2 }}
{{- end -}}

{{- define "weir.container" -}}
name: weir
{{ include "weir.containerBase" . }}
command: [/bin/weir]
args:
  - serve
  - --config=/etc/weir/settings/weir.yaml
  {{- range .Values.extraArgs }}
  - {{ . | quote }}
  {{- end }}
{{- include "weir.containerEnv" . }}
{{- if eq .Values.kind "Sidecar" }}
{{- include "weir.sidecarPortsAndProbes" . }}
{{- else }}
ports:
  - { name: grpc, containerPort: 8081, protocol: TCP }
  - { name: http, containerPort: 8080, protocol: TCP }
  {{- if .Values.metrics.enabled }}
  - { name: metrics, containerPort: 9090, protocol: TCP }
  {{- end }}
startupProbe:
  httpGet: { path: /livez, port: http }
  {{- toYaml .Values.startupProbe | nindent 2 }}
livenessProbe:
  httpGet: { path: /livez, port: http }
  {{- toYaml .Values.livenessProbe | nindent 2 }}
readinessProbe:
  httpGet: { path: /readyz, port: http }
  {{- toYaml .Values.readinessProbe | nindent 2 }}
{{- end }}
{{- with .Values.lifecycle }}
lifecycle:
  {{- toYaml . | nindent 2 }}
{{- end }}
resources:
  {{- include "weir.resources" . | nindent 2 }}
volumeMounts:
  {{- include "weir.volumeMounts" . | nindent 2 }}
{{- end -}}
