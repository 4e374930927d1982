{{/* Variables, mounts and volumes of weir, and the pod of a Deployment or DaemonSet. */}}

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

{{/* A pod of another chart has volumes with names such as `settings`. */}}
{{- define "weir.volumePrefix" -}}
{{- if eq .Values.kind "Sidecar" }}weir-{{ end -}}
{{- end -}}

{{/* Mounts of whole folders, so that a changed ConfigMap or Secret reaches the running pod. */}}
{{- define "weir.volumeMounts" -}}
{{- $prefix := include "weir.volumePrefix" . -}}
- { name: {{ $prefix }}settings, mountPath: /etc/weir/settings, readOnly: true }
- { name: {{ $prefix }}rules, mountPath: /etc/weir/rules, readOnly: true }
{{- if .Values.overlays }}
- { name: {{ $prefix }}overlays, mountPath: /etc/weir/overlays, readOnly: true }
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
- { name: {{ $prefix }}redis-password, mountPath: /etc/weir/redis, readOnly: true }
{{- end }}
{{- end }}
{{- with .Values.redis.tls }}
{{- if and .enabled .caSecret.name }}
- { name: {{ $prefix }}redis-ca, mountPath: /etc/weir/redis-ca, readOnly: true }
{{- end }}
{{- if and .enabled .clientSecret }}
- { name: {{ $prefix }}redis-tls, mountPath: /etc/weir/redis-tls, readOnly: true }
{{- end }}
{{- end }}
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* Only weir mounts the files of Secrets. In a pod of another chart, weir may have no group that owns them. */}}
{{- define "weir.volumes" -}}
{{- $prefix := include "weir.volumePrefix" . -}}
{{- $mode := ternary "0444" "0440" (eq .Values.kind "Sidecar") -}}
- name: {{ $prefix }}settings
  configMap: { name: {{ include "weir.fullname" . }} }
- name: {{ $prefix }}rules
  configMap: { name: {{ include "weir.rulesConfigMap" . | quote }} }
{{- if .Values.overlays }}
- name: {{ $prefix }}overlays
  configMap: { name: {{ include "weir.fullname" . }}-overlays }
{{- end }}
{{- if .Values.tls.enabled }}
- name: tls
  secret: { secretName: {{ include "weir.tlsSecret" . | quote }}, defaultMode: {{ $mode }} }
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
- name: {{ $prefix }}redis-password
  secret: { secretName: {{ .name | quote }}, defaultMode: {{ $mode }}, items: [{ key: {{ .passwordKey | quote }}, path: password }] }
{{- end }}
{{- end }}
{{- with .Values.redis.tls }}
{{- if and .enabled .caSecret.name }}
- name: {{ $prefix }}redis-ca
  secret: { secretName: {{ .caSecret.name | quote }}, items: [{ key: {{ .caSecret.key | quote }}, path: ca.crt }] }
{{- end }}
{{- if and .enabled .clientSecret }}
- name: {{ $prefix }}redis-tls
  secret: { secretName: {{ .clientSecret | quote }}, defaultMode: {{ $mode }} }
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

{{/* The template of the pods of a Deployment or DaemonSet. */}}
{{- define "weir.podTemplate" -}}
metadata:
  labels:
    {{- include "weir.podLabels" . | nindent 4 }}
  annotations:
    kubectl.kubernetes.io/default-container: weir
    {{- include "weir.checksums" . | nindent 4 }}
    {{- with merge (dict) .Values.podAnnotations .Values.commonAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
  serviceAccountName: {{ include "weir.serviceAccountName" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  {{- with concat .Values.global.imagePullSecrets .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  # drain.delay plus drain.timeout plus 5 s. After SIGTERM, weir fails its health and serves for
  # drain.delay, so no preStop hook is needed.
  terminationGracePeriodSeconds: {{ include "weir.gracePeriod" . }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with .Values.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  {{- if or .Values.checkRules .Values.initContainers }}
  initContainers:
    {{- if .Values.checkRules }}
    - {{ include "weir.checkContainer" . | nindent 6 | trim }}
    {{- end }}
    {{- with .Values.initContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
  containers:
    - {{ include "weir.container" . | nindent 6 | trim }}
    {{- with .Values.sidecars }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  volumes:
    {{- include "weir.volumes" . | nindent 4 }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq .Values.kind "Deployment" }}
  topologySpreadConstraints:
    {{- include "weir.spread" . | trim | nindent 4 }}
  {{- end }}
  {{- with .Values.dnsConfig }}
  dnsConfig:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{/* weir reads settings only at the start, so changed settings replace the pods. It watches rules. */}}
{{- define "weir.checksums" -}}
checksum/settings: {{ include "weir.settings" . | sha256sum }}
{{- if .Values.restartOnRuleChange }}
checksum/rules: {{ toJson .Values.rules | sha256sum }}
{{- end }}
{{- end -}}
