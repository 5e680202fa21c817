{{/* What a schema cannot say. Each message says what to do. */}}
{{- define "stream-metrics.validate" -}}
{{- $root := . }}
{{- if not (include "stream-metrics.has" (list . "kafka" "bootstrap_servers")) }}
{{- fail "no brokers: set settings.kafka.bootstrap_servers, such as broker-1:9092,broker-2:9092" }}
{{- end }}
{{- if not (or (include "stream-metrics.has" (list . "redis" "url")) (include "stream-metrics.has" (list . "redis" "sentinels"))) }}
{{- fail "no Redis: set settings.redis.url, such as redis://redis:6379/0, or settings.redis.sentinels" }}
{{- end }}
{{- if not (or (include "stream-metrics.has" (list . "state" "digest_key")) (include "stream-metrics.has" (list . "state" "digest_key_file")) (dig "state" "allow_empty_key" false .Values.settings)) }}
{{- fail "no digest key: create a Secret with what `openssl rand -hex 32` prints, and name it, as in files.state.digest_key_file: {existingSecret: stream-metrics, key: digest-key}; for a trial, set settings.state.allow_empty_key to true" }}
{{- end }}
{{- if and .Values.judge.enabled (not (include "stream-metrics.has" (list . "judge" "model"))) }}
{{- fail "judge.enabled, but no model: set settings.judge.model, and files.judge.key_file if its endpoint asks for a key" }}
{{- end }}
{{- $places := dict }}
{{- range $map := list "settings" "secrets" "files" }}
{{- range $table, $values := index $root.Values $map }}
{{- if kindIs "map" $values }}
{{- range $name, $value := $values }}
{{- if not (kindIs "invalid" $value) }}
{{- $setting := printf "%s.%s" $table $name }}
{{- with get $places $setting }}
{{- fail (printf "%s is in %s and in %s: leave one of them" $setting . $map) }}
{{- end }}
{{- $_ := set $places $setting $map }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- if and (or .Values.prometheusRule.enabled .Values.dashboards.enabled) (not (.Files.Get "files/rules/alerts.rules.yml")) }}
{{- fail "this copy of the chart has no alert rules and no dashboards: `make chart` in the repository of stream-metrics writes a complete one to out/chart/stream-metrics" }}
{{- end }}
{{- if .Values.keda.enabled }}
{{- $most := int .Values.keda.maxReplicaCount }}
{{- if gt $most (int .Values.topics.partitions) }}
{{- fail (printf "keda.maxReplicaCount is %d, but the topics have %d partitions (topics.partitions): further workers would be idle" $most (int .Values.topics.partitions)) }}
{{- end }}
{{- if gt (int .Values.keda.minReplicaCount) $most }}
{{- fail "keda.minReplicaCount must not be above keda.maxReplicaCount" }}
{{- end }}
{{- end }}
{{- end }}
