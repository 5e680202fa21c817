{{/* Names and labels. */}}

{{- define "stream-metrics.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* At most 52 characters: a StatefulSet appends a revision to make a label of at most 63. */}}
{{- define "stream-metrics.fullname" -}}
{{- $name := include "stream-metrics.name" . }}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains $name .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name $name | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* The services that run, as JSON: workers, and bridge and judge on request. */}}
{{- define "stream-metrics.parts" -}}
{{- $parts := list "worker" }}
{{- range list "bridge" "judge" }}
{{- if (index $.Values .).enabled }}
{{- $parts = append $parts . }}
{{- end }}
{{- end }}
{{- toJson $parts }}
{{- end }}

{{/* The name of a part's objects: (dict "root" $ "part" "bridge"). */}}
{{- define "stream-metrics.partName" -}}
{{- include "stream-metrics.fullname" .root }}{{ if ne .part "worker" }}-{{ .part }}{{ end }}
{{- end }}

{{/* The job under which Prometheus scrapes a part, which rules and dashboards select. */}}
{{- define "stream-metrics.job" -}}
stream-metrics{{ if ne .part "worker" }}-{{ .part }}{{ end }}
{{- end }}

{{- define "stream-metrics.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/version: {{ .Values.image.tag | default .Chart.AppVersion | trunc 63 | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: stream-metrics
{{- end }}

{{/* The labels that select the pods of a part: (dict "root" $ "part" "worker"). */}}
{{- define "stream-metrics.selector" -}}
app.kubernetes.io/name: {{ include "stream-metrics.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "stream-metrics.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "stream-metrics.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "stream-metrics.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) }}
{{- end }}
{{- end }}

{{/* A setting as text, by (list $ table name): of `settings`, or empty. */}}
{{- define "stream-metrics.setting" -}}
{{- $values := (index . 0).Values }}
{{- $value := dig (index . 1) (index . 2) "" (default dict $values.settings) }}
{{- include "stream-metrics.text" $value }}
{{- end }}

{{/* Whether a setting has a value anywhere: "yes" or empty. */}}
{{- define "stream-metrics.has" -}}
{{- $values := (index . 0).Values }}
{{- $table := index . 1 }}
{{- $name := index . 2 }}
{{- range list $values.settings $values.secrets $values.files }}
{{- if not (kindIs "invalid" (dig $table $name nil (default dict .))) }}yes{{ end }}
{{- end }}
{{- end }}

{{/* A value as the environment has it: lists and maps as JSON. */}}
{{- define "stream-metrics.text" -}}
{{- if kindIs "string" . }}{{ . }}{{ else }}{{ toJson . }}{{ end }}
{{- end }}

{{/* The port of a part: (dict "root" $ "part" "bridge"). */}}
{{- define "stream-metrics.partPort" -}}
{{- $usual := dict "worker" "9464" "bridge" "9474" "judge" "9484" }}
{{- $table := eq .part "worker" | ternary "web" .part }}
{{- include "stream-metrics.setting" (list .root $table "port") | default (get $usual .part) }}
{{- end }}

{{- define "stream-metrics.port" -}}
{{- include "stream-metrics.partPort" (dict "root" . "part" "worker") }}
{{- end }}

{{- define "stream-metrics.scheme" -}}
{{- if include "stream-metrics.has" (list . "web" "tls_certificate") }}https{{ else }}http{{ end }}
{{- end }}

{{/* The topics from which state is built, and the group that reads each, as JSON. */}}
{{- define "stream-metrics.reads" -}}
{{- $kafka := default dict .Values.settings.kafka }}
{{- $topics := default (list "search-iterations" "relevance-labels") $kafka.topics }}
{{- $group := .Values.keda.consumerGroup | default $kafka.group_id | default "stream-metrics" }}
{{- $reads := list }}
{{- if $kafka.repartition_topic }}
{{- range $topics }}
{{- $reads = append $reads (dict "topic" . "group" $kafka.repartition_topic) }}
{{- end }}
{{- $topics = list $kafka.repartition_topic }}
{{- end }}
{{- range $topics }}
{{- $reads = append $reads (dict "topic" . "group" $group) }}
{{- end }}
{{- toJson $reads }}
{{- end }}
