{{/* The common parts of the containers of weir's image: the service, its check, and the test. */}}

{{- define "weir.containerBase" -}}
image: {{ include "weir.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  {{- toYaml .Values.securityContext | nindent 2 }}
{{- end -}}

{{- define "weir.env" -}}
{{- $secret := .Values.redis.existingSecret -}}
{{- if eq .Values.store "redis" }}
{{- with $secret.urlKey }}
- name: WEIR__REDIS__URL
  valueFrom:
    secretKeyRef: { name: {{ $secret.name | quote }}, key: {{ . | quote }} }
{{- end }}
{{- with $secret.keySecretKey }}
- name: WEIR__REDIS__KEY_SECRET
  valueFrom:
    secretKeyRef: { name: {{ $secret.name | quote }}, key: {{ . | quote }} }
{{- end }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Mounts of whole folders, so that a changed ConfigMap or Secret reaches the running pod. */}}
{{- define "weir.volumeMounts" -}}
- { name: settings, mountPath: /etc/weir/settings, readOnly: true }
- { name: rules, mountPath: /etc/weir/rules, readOnly: true }
{{- if .Values.overlays }}
- { name: overlays, mountPath: /etc/weir/overlays, readOnly: true }
{{- end }}
{{- if .Values.tls.enabled }}
- { name: tls, mountPath: /etc/weir/tls, readOnly: true }
{{- if .Values.tls.clientCA.existingSecret }}
- { name: client-ca, mountPath: /etc/weir/client-ca, readOnly: true }
{{- end }}
{{- end }}
{{- if eq .Values.store "redis" }}
{{- with .Values.redis.existingSecret }}
{{- if and .name .passwordKey }}
- { name: redis-password, mountPath: /etc/weir/redis, readOnly: true }
{{- end }}
{{- end }}
{{- with .Values.redis.tls }}
{{- if and .enabled .caSecret.name }}
- { name: redis-ca, mountPath: /etc/weir/redis-ca, readOnly: true }
{{- end }}
{{- if and .enabled .clientSecret }}
- { name: redis-tls, mountPath: /etc/weir/redis-tls, readOnly: true }
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "weir.volumes" -}}
- name: settings
  configMap: { name: {{ include "weir.fullname" . }} }
- name: rules
  configMap: { name: {{ include "weir.rulesConfigMap" . | quote }} }
{{- if .Values.overlays }}
- name: overlays
  configMap: { name: {{ include "weir.fullname" . }}-overlays }
{{- end }}
{{- if .Values.tls.enabled }}
- name: tls
  secret: { secretName: {{ include "weir.tlsSecret" . | quote }}, defaultMode: 0440 }
{{- with .Values.tls.clientCA }}
{{- if .existingSecret }}
- name: client-ca
  secret: { secretName: {{ .existingSecret | quote }}, items: [{ key: {{ .key | quote }}, path: {{ .key | quote }} }] }
{{- end }}
{{- end }}
{{- end }}
{{- if eq .Values.store "redis" }}
{{- with .Values.redis.existingSecret }}
{{- if and .name .passwordKey }}
- name: redis-password
  secret: { secretName: {{ .name | quote }}, defaultMode: 0440, items: [{ key: {{ .passwordKey | quote }}, path: password }] }
{{- end }}
{{- end }}
{{- with .Values.redis.tls }}
{{- if and .enabled .caSecret.name }}
- name: redis-ca
  secret: { secretName: {{ .caSecret.name | quote }}, items: [{ key: {{ .caSecret.key | quote }}, path: ca.crt }] }
{{- end }}
{{- if and .enabled .clientSecret }}
- name: redis-tls
  secret: { secretName: {{ .clientSecret | quote }}, defaultMode: 0440 }
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Soft spread over nodes and zones, unless the values set constraints. Takes the root. */}}
{{- define "weir.spread" -}}
{{- if .Values.topologySpreadConstraints }}
{{- toYaml .Values.topologySpreadConstraints }}
{{- else }}
{{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "weir.selectorLabels" $ | nindent 6 }}
{{- end }}
{{- end }}
{{- end -}}
