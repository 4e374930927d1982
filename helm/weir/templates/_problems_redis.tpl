{{/* Values of Redis that contradict one another. Each line is a problem. */}}

{{- define "weir.redisProblems" -}}
{{- $values := .Values -}}
{{- $redis := $values.redis -}}
{{- $trial := $values.trialRedis.enabled -}}
{{- if and $trial (ne $values.store "redis") }}
trialRedis.enabled needs store: redis
{{- end }}
{{- if eq $values.store "redis" }}
{{- if $trial }}
{{- if or $redis.hosts $redis.existingSecret.urlKey }}
trialRedis.enabled, and redis.hosts or redis.existingSecret.urlKey: the address of Redis comes from one of them
{{- end }}
{{- if ne $redis.topology "standalone" }}
trialRedis.enabled needs redis.topology: standalone, because it is one server
{{- end }}
{{- if or $redis.tls.enabled $redis.username (and $redis.existingSecret.name $redis.existingSecret.passwordKey) }}
trialRedis.enabled: the trial Redis has no TLS, no users and no password; remove redis.tls, redis.username and redis.existingSecret.name
{{- end }}
{{- else if and $redis.hosts $redis.existingSecret.urlKey }}
redis.hosts and redis.existingSecret.urlKey: the address of Redis comes from one of them
{{- else if not (or $redis.hosts $redis.existingSecret.urlKey) }}
store: redis needs redis.hosts, or redis.existingSecret.urlKey, or for a trial trialRedis.enabled
{{- end }}
{{- if and $redis.existingSecret.urlKey (not $redis.existingSecret.name) }}
redis.existingSecret.urlKey: name the secret in redis.existingSecret.name
{{- end }}
{{- if and (eq $redis.topology "sentinel") $redis.hosts (not $redis.sentinelPrimary) }}
redis.topology: sentinel needs redis.sentinelPrimary, the name of the primary in the configuration of the Sentinels
{{- end }}
{{- if and (eq $redis.topology "standalone") (gt (len $redis.hosts) 1) }}
redis.hosts: redis.topology: standalone needs exactly one host; cluster and sentinel accept several
{{- end }}
{{- end }}
{{- end -}}
