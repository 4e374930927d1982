{{/* weir.yaml: `settings`, overridden by the settings that the chart derives from its values. */}}

{{- define "weir.settings" -}}
{{- $sections := include "weir.derivedSettings" . | fromYaml | mergeOverwrite (deepCopy .Values.settings) -}}
{{- range $section := keys $sections | sortAlpha }}
{{- with get $sections $section }}
{{ $section }}:
{{- $settings := . }}
{{- range $key := keys $settings | sortAlpha }}
{{- $value := get $settings $key }}
{{- if not (kindIs "invalid" $value) }}
  {{/* JSON, because YAML would write a large number as 4e+06. */ -}}
  {{ $key }}: {{ toJson $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Settings that depend on mounts and open ports. `settings` cannot contain them. */}}
{{- define "weir.derivedSettings" -}}
{{- $isSidecar := eq .Values.kind "Sidecar" -}}
{{- $ports := .Values.sidecar.ports -}}
grpc:
  listen: {{ ternary (printf "127.0.0.1:%d" (int $ports.grpc)) "[::]:8081" $isSidecar | quote }}
  {{- if .Values.tls.enabled }}
  tls_cert: /etc/weir/tls/tls.crt
  tls_key: /etc/weir/tls/tls.key
  {{- if .Values.tls.clientCA.existingSecret }}
  tls_client_ca: /etc/weir/client-ca/{{ .Values.tls.clientCA.key }}
  tls_client_cert: {{ .Values.tls.clientCA.callers }}
  {{- with .Values.tls.clientCA.san }}
  tls_client_san: {{ . | quote }}
  {{- end }}
  {{- end }}
  {{- end }}
http:
  listen: {{ ternary (printf "127.0.0.1:%d" (int $ports.http)) "[::]:8080" $isSidecar | quote }}
admin:
  # The admin listener shows and deletes counters. Use `kubectl port-forward` to connect to it.
  listen: "127.0.0.1:{{ ternary (int $ports.admin) 6070 $isSidecar }}"
{{- if .Values.metrics.enabled }}
metrics:
  listen: "[::]:{{ ternary (int $ports.metrics) 9090 $isSidecar }}"
{{- end }}
{{- if or (include "weir.hasRuleFiles" .) .Values.overlays }}
rules:
  {{- if include "weir.hasRuleFiles" . }}
  paths: [/etc/weir/rules]
  {{- end }}
  {{- if .Values.overlays }}
  overlay_paths: [/etc/weir/overlays]
  {{- end }}
{{- end }}
store:
  kind: {{ .Values.store }}
{{- if eq .Values.store "redis" }}
redis:
  {{- if not .Values.redis.existingSecret.urlKey }}
  url: {{ include "weir.redisUrl" . | quote }}
  {{- end }}
  {{- with .Values.redis.username }}
  username: {{ . | quote }}
  {{- end }}
  {{- if and .Values.redis.existingSecret.name .Values.redis.existingSecret.passwordKey }}
  password_file: /etc/weir/redis/password
  {{- end }}
  {{- with .Values.redis.tls }}
  {{- if .enabled }}
  {{- if .caSecret.name }}
  tls_ca: /etc/weir/redis-ca/ca.crt
  {{- end }}
  {{- if .clientSecret }}
  tls_cert: /etc/weir/redis-tls/tls.crt
  tls_key: /etc/weir/redis-tls/tls.key
  {{- end }}
  tls_skip_hostname_check: {{ .skipHostnameCheck }}
  {{- end }}
  {{- end }}
{{- end }}
{{- $instances := include "weir.instances" . }}
{{- if and $instances (not (hasKey (.Values.settings.fallback | default dict) "instances")) }}
fallback:
  instances: {{ $instances }}
{{- end }}
{{- if and $isSidecar (include "weir.hasNativeSidecars" .) (not (hasKey (.Values.settings.drain | default dict) "delay")) }}
# A native sidecar gets SIGTERM after the callers in its pod have ended.
drain:
  delay: 0s
{{- end }}
{{- end -}}

{{/* Not empty if weir reads rule files: always, except when a server sends the rules and the values have none. */}}
{{- define "weir.hasRuleFiles" -}}
{{- $server := ((.Values.settings.rules | default dict).xds | default dict).server -}}
{{- if or .Values.rules .Values.existingRulesConfigMap (not $server) -}}
true
{{- end -}}
{{- end -}}

{{/* The URL of one node, of a Cluster or of Sentinels. It never contains a password. */}}
{{- define "weir.redisUrl" -}}
{{- $redis := .Values.redis -}}
{{- $hosts := $redis.hosts -}}
{{- if .Values.trialRedis.enabled }}{{ $hosts = list (include "weir.trialRedisHost" .) }}{{ end -}}
{{- $scheme := ternary "rediss" "redis" $redis.tls.enabled -}}
{{- $query := list -}}
{{- range rest $hosts }}{{ $query = append $query (printf "node=%s" .) }}{{ end -}}
{{- if eq $redis.topology "standalone" -}}
{{ $scheme }}://{{ first $hosts }}{{ with int $redis.database }}/{{ . }}{{ end }}
{{- else if eq $redis.topology "cluster" -}}
{{ $scheme }}-cluster://{{ first $hosts }}{{ with $query }}?{{ join "&" . }}{{ end }}
{{- else -}}
{{- $query = append $query (printf "sentinelServiceName=%s" $redis.sentinelPrimary) -}}
{{ $scheme }}-sentinel://{{ first $hosts }}{{ with int $redis.database }}/{{ . }}{{ end }}?{{ join "&" $query }}
{{- end -}}
{{- end -}}

{{/* Seconds from SIGTERM to the last response, plus 5 s. The kubelet must not kill weir earlier. */}}
{{- define "weir.gracePeriod" -}}
{{- $drain := .Values.settings.drain | default dict -}}
{{- $delay := get $drain "delay" | default "5s" -}}
{{- $timeout := get $drain "timeout" | default "30s" -}}
{{- add (include "weir.seconds" $delay) (include "weir.seconds" $timeout) 5 -}}
{{- end -}}
