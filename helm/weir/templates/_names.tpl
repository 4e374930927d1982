{{/* Names, labels and the image, which most templates use. Each takes the root. */}}

{{- define "weir.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{/* 51 characters leave room for the suffixes of names, of which `-trial-redis` is the longest. */}}
{{- define "weir.fullname" -}}
{{- $name := include "weir.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 51 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 51 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 51 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "weir.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end -}}

{{/* The selector of a Deployment is immutable, so these labels must never change. */}}
{{- define "weir.selectorLabels" -}}
app.kubernetes.io/name: {{ include "weir.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "weir.labels" -}}
{{ include "weir.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: ratelimit
{{ include "weir.sharedLabels" . }}
{{- end -}}

{{- define "weir.sharedLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Without the version of the chart, so that a new chart alone does not replace the pods. */}}
{{- define "weir.podLabels" -}}
{{ include "weir.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/component: ratelimit
{{- with merge (dict) .Values.podLabels .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* These labels do not match the Service's selector: the pod of `helm test` serves no calls. */}}
{{- define "weir.testLabels" -}}
app.kubernetes.io/name: {{ include "weir.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* The metadata of an object. Takes a dict: root, suffix of the name, its labels and annotations, and whether it
     belongs to the trial Redis. */}}
{{- define "weir.metadata" -}}
{{- $root := .root -}}
name: {{ include "weir.fullname" $root }}{{ .suffix }}
namespace: {{ .namespace | default (include "weir.namespace" $root) }}
labels:
  {{- if .ofTrialRedis }}
  {{- include "weir.trialRedisLabels" $root | nindent 2 }}
  {{- include "weir.sharedLabels" $root | nindent 2 }}
  {{- else }}
  {{- include "weir.labels" $root | nindent 2 }}
  {{- end }}
  {{- with .labels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (.annotations | default dict) $root.Values.commonAnnotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "weir.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "weir.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* With a digest, Kubernetes ignores the tag. The tag informs people. */}}
{{- define "weir.image" -}}
{{- $registry := .Values.global.imageRegistry | default .Values.image.registry -}}
{{- with $registry }}{{ . }}/{{ end -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- with .Values.image.digest }}@{{ . }}{{ end -}}
{{- end -}}

{{- define "weir.rulesConfigMap" -}}
{{- .Values.existingRulesConfigMap | default (printf "%s-rules" (include "weir.fullname" .)) -}}
{{- end -}}

{{- define "weir.tlsSecret" -}}
{{- .Values.tls.existingSecret | default (printf "%s-tls" (include "weir.fullname" .)) -}}
{{- end -}}

{{/* A duration of weir.yaml in whole seconds, rounded up. */}}
{{- define "weir.seconds" -}}
{{- $units := dict "ms" 1 "s" 1000 "m" 60000 "h" 3600000 "d" 86400000 -}}
{{- $ms := 0 -}}
{{- range regexFindAll "[0-9]+(ms|s|m|h|d)" (toString .) -1 -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- $ms = add $ms (mul $number (get $units (regexFind "[a-z]+$" .))) -}}
{{- end -}}
{{- div (add $ms 999) 1000 -}}
{{- end -}}

{{/* The minimum number of pods. weir divides a limit by it for `on_error: local`. Empty where the nodes, or the
     pods of another chart, decide their number. */}}
{{- define "weir.instances" -}}
{{- if ne .Values.kind "Deployment" }}{{/* unknown */}}
{{- else if .Values.keda.enabled }}{{ max 1 (int .Values.keda.minReplicaCount) }}
{{- else if .Values.autoscaling.enabled }}{{ .Values.autoscaling.minReplicas }}
{{- else }}{{ max 1 (int .Values.replicaCount) }}{{ end -}}
{{- end -}}
