{{/* The memory limit, which follows from the settings: docs/operate/memory.md. */}}

{{/* The default is that of weir. */}}
{{- define "weir.maxCounters" -}}
{{- get (.Values.settings.store | default dict) "max_counters" | default 4000000 | int64 -}}
{{- end -}}

{{/* The default is that of weir. */}}
{{- define "weir.clientMemory" -}}
{{- get (.Values.settings.grpc | default dict) "max_client_memory" | default 536870912 | int64 -}}
{{- end -}}

{{/* The connections of the three HTTP listeners. The defaults are those of weir. */}}
{{- define "weir.httpConnections" -}}
{{- $http := get (.Values.settings.http | default dict) "max_connections" | default 1024 | int64 -}}
{{- get (.Values.settings.admin | default dict) "max_connections" | default 64 | int64 | mul 2 | add $http -}}
{{- end -}}

{{/* Bytes: the connections of the three HTTP listeners, and 32 large requests. The defaults are those of weir. */}}
{{- define "weir.httpMemory" -}}
{{- $http := .Values.settings.http | default dict -}}
{{- $connections := include "weir.httpConnections" . | int64 -}}
{{- $connection := get $http "max_head_bytes" | default 32768 | int64 | mul 4 | add 65536 -}}
{{- $large := get $http "max_body_bytes" | default 262144 | int64 | mul 2 | add 524288 -}}
{{- add (mul $connections $connection) (mul 32 $large) -}}
{{- end -}}

{{/* Bytes: the kernel's buffers of 128 KiB and 16 KiB for each connection. Half of the clients' memory has room
     for one gRPC connection per 64 KiB. The default is that of weir. */}}
{{- define "weir.kernelMemory" -}}
{{- $grpc := get (.Values.settings.grpc | default dict) "max_connections" | default 16384 | int64 -}}
{{- $grpc = min $grpc (div (include "weir.clientMemory" . | int64) 131072) -}}
{{- mul 147456 (include "weir.httpConnections" . | int64 | add $grpc) -}}
{{- end -}}

{{/* The default is that of weir; 0 without RLQS. */}}
{{- define "weir.rlqsBuckets" -}}
{{- $rlqs := .Values.settings.rlqs | default dict -}}
{{- if eq (get $rlqs "enabled" | toString) "false" }}0{{ else }}{{ get $rlqs "max_buckets" | default 40000 | int64 }}{{ end -}}
{{- end -}}

{{/* Bytes: 4 KiB per bucket of an Envoy, and as much for shares of callers of ShouldRateLimit. */}}
{{- define "weir.rlqsMemory" -}}
{{- include "weir.rlqsBuckets" . | int64 | mul 8192 -}}
{{- end -}}

{{/* Bytes: the process, 128 per counter, 8 KiB per bucket of RLQS, what clients hold, a quarter of all that, and the kernel's buffers. */}}
{{- define "weir.neededMemory" -}}
{{- $counters := include "weir.maxCounters" . | int64 -}}
{{- $clients := add (include "weir.clientMemory" . | int64) (include "weir.httpMemory" . | int64) -}}
{{- $sum := include "weir.rlqsMemory" . | int64 | add 67108864 (mul $counters 128) $clients -}}
{{- div (add (mul $sum 5) 3) 4 | add (include "weir.kernelMemory" . | int64) -}}
{{- end -}}

{{/* Bytes in whole MiB, rounded up. */}}
{{- define "weir.mebibytes" -}}
{{- div (add (int64 .) 1048575) 1048576 -}}
{{- end -}}

{{/* The bytes of a quantity of Kubernetes; 0 for a notation that the chart does not read. */}}
{{- define "weir.bytes" -}}
{{- $text := kindIs "string" . | ternary . (printf "%v" (int64 .)) -}}
{{- $units := dict "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 -}}
{{- $unit := regexFind "[A-Za-z]+$" $text -}}
{{- if and (regexMatch "^[0-9]+([.][0-9]+)?[A-Za-z]*$" $text) (or (not $unit) (hasKey $units $unit)) -}}
{{- $factor := 1 -}}
{{- if $unit }}{{ $factor = get $units $unit }}{{ end -}}
{{- mulf (regexFind "^[0-9.]+" $text | float64) (float64 $factor) | floor | int64 -}}
{{- else -}}
0
{{- end -}}
{{- end -}}

{{/* The resources of weir, with a memory limit. */}}
{{- define "weir.resources" -}}
{{- $resources := deepCopy .Values.resources -}}
{{- $limits := $resources.limits | default dict -}}
{{- if kindIs "invalid" $limits.memory -}}
{{- $memory := include "weir.neededMemory" . | include "weir.mebibytes" | printf "%sMi" -}}
{{- $limits = set $limits "memory" $memory -}}
{{- end -}}
{{- toYaml (set $resources "limits" $limits) -}}
{{- end -}}
