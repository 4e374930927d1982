{{/* Names of the trial Redis. Its labels do not match the selectors of weir. */}}

{{- define "weir.trialRedisName" -}}
{{- include "weir.fullname" . }}-trial-redis
{{- end -}}

{{- define "weir.trialRedisHost" -}}
{{- include "weir.trialRedisName" . }}.{{ include "weir.namespace" . }}.svc:6379
{{- end -}}

{{- define "weir.trialRedisLabels" -}}
app.kubernetes.io/name: {{ include "weir.name" . }}-trial-redis
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: trial-redis
{{- end -}}

{{- define "weir.trialRedisImage" -}}
{{- $image := .Values.trialRedis.image -}}
{{- with .Values.global.imageRegistry | default $image.registry }}{{ . }}/{{ end -}}
{{ $image.repository }}:{{ $image.tag }}
{{- with $image.digest }}@{{ . }}{{ end -}}
{{- end -}}
