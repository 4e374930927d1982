{{/* Rejects values that contradict one another, which the schema cannot express. Reports all at once. */}}

{{- define "weir.refuseContradictions" -}}
{{- $problems := list -}}
{{- $values := .Values -}}
{{- if and $values.autoscaling.enabled $values.keda.enabled -}}
{{- $problems = append $problems "autoscaling.enabled and keda.enabled: both would scale the Deployment; choose one" -}}
{{- end -}}
{{- if and $values.keda.enabled (not $values.keda.triggers) -}}
{{- $problems = append $problems "keda.enabled: needs at least one trigger in keda.triggers" -}}
{{- end -}}
{{- if and (not (kindIs "invalid" $values.podDisruptionBudget.minAvailable)) (not (kindIs "invalid" $values.podDisruptionBudget.maxUnavailable)) -}}
{{- $problems = append $problems "podDisruptionBudget: minAvailable and maxUnavailable exclude one another; set the other one to null" -}}
{{- end -}}
{{- if and $values.rules $values.existingRulesConfigMap -}}
{{- $problems = append $problems "rules and existingRulesConfigMap: rules come from one of them" -}}
{{- end -}}
{{- if $values.tls.enabled -}}
{{- if and $values.tls.existingSecret $values.tls.certManager.enabled -}}
{{- $problems = append $problems "tls.existingSecret and tls.certManager.enabled: the certificate comes from one of them" -}}
{{- else if not (or $values.tls.existingSecret $values.tls.certManager.enabled) -}}
{{- $problems = append $problems "tls.enabled: name a secret in tls.existingSecret, or set tls.certManager.enabled" -}}
{{- end -}}
{{- if and $values.tls.certManager.enabled (not $values.tls.certManager.issuerRef.name) -}}
{{- $problems = append $problems "tls.certManager.enabled: name the issuer in tls.certManager.issuerRef.name" -}}
{{- end -}}
{{- else if or $values.tls.existingSecret $values.tls.certManager.enabled $values.tls.clientCA.existingSecret -}}
{{- $problems = append $problems "tls.existingSecret, tls.certManager and tls.clientCA need tls.enabled: true" -}}
{{- end -}}
{{- if not $values.metrics.enabled -}}
{{- range list "serviceMonitor" "podMonitor" "prometheusRule" -}}
{{- if get (get $values.metrics .) "enabled" -}}
{{- $problems = append $problems (printf "metrics.%s.enabled needs metrics.enabled: true" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $values.metrics.serviceMonitor.enabled $values.metrics.podMonitor.enabled -}}
{{- $problems = append $problems "metrics.serviceMonitor and metrics.podMonitor: every sample would be counted twice; choose one" -}}
{{- end -}}
{{- $limit := ($values.resources.limits | default dict).memory -}}
{{- if not (kindIs "invalid" $limit) -}}
{{- $bytes := include "weir.bytes" $limit | int64 -}}
{{- $needed := include "weir.neededMemory" . | int64 -}}
{{- if and $bytes (lt $bytes $needed) -}}
{{- $text := "resources.limits.memory: %v is less than the %dMi that the settings may need: 64Mi, %d counters of 128 bytes (settings.store.max_counters), %d RLQS buckets of 8 KiB (settings.rlqs.max_buckets), %d bytes (settings.grpc.max_client_memory) and %d bytes for HTTP (settings.http, settings.admin.max_connections), a quarter, and %d bytes of the kernel for connections (settings.grpc.max_connections); raise the limit, or lower these settings" -}}
{{- $problems = append $problems (printf $text $limit (include "weir.mebibytes" $needed | int64) (include "weir.maxCounters" . | int64) (include "weir.rlqsBuckets" . | int64) (include "weir.clientMemory" . | int64) (include "weir.httpMemory" . | int64) (include "weir.kernelMemory" . | int64)) -}}
{{- end -}}
{{- end -}}
{{- range list "weir.kindProblems" "weir.serviceProblems" "weir.redisProblems" -}}
{{- $problems = concat $problems (include . $ | splitList "\n" | compact) -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\nweir's values contradict one another:\n- %s" (join "\n- " $problems)) -}}
{{- end -}}
{{- end -}}
