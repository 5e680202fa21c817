{{/*
The environment of a container: settings, secrets, and the paths of files: (dict "root" $ "part" "worker").
Kubernetes would replace $(NAME) in a value, so that a dollar before a bracket is written twice.
*/}}
{{- define "stream-metrics.environment" -}}
{{- $root := .root }}
{{- range $table, $values := $root.Values.settings }}
{{- if kindIs "map" $values }}
{{- range $name, $value := $values }}
{{- if not (kindIs "invalid" $value) }}
- name: {{ printf "STREAM_METRICS_%s__%s" $table $name | upper }}
  value: {{ include "stream-metrics.text" $value | replace "$(" "$$(" | toJson }}
{{- end }}
{{- end }}
{{- else if not (kindIs "invalid" $values) }}
- name: {{ printf "STREAM_METRICS_%s" $table | upper }}
  value: {{ include "stream-metrics.text" $values | replace "$(" "$$(" | toJson }}
{{- end }}
{{- end }}
{{- /* A setting of the bridge tells `stream-metrics check` to look at its topics, too. */}}
{{- if and $root.Values.bridge.enabled (not (include "stream-metrics.has" (list $root "bridge" "port"))) }}
- name: STREAM_METRICS_BRIDGE__PORT
  value: {{ include "stream-metrics.partPort" (dict "root" $root "part" "bridge") | quote }}
{{- end }}
{{- range $table, $values := include "stream-metrics.given" (dict "of" $root.Values.secrets "part" .part) | fromJson }}
{{- range $name, $from := $values }}
{{- if $from }}
- name: {{ printf "STREAM_METRICS_%s__%s" $table $name | upper }}
  valueFrom:
    secretKeyRef:
      name: {{ $from.existingSecret }}
      key: {{ $from.key }}
{{- end }}
{{- end }}
{{- end }}
{{- range $table, $values := include "stream-metrics.given" (dict "of" $root.Values.files "part" .part) | fromJson }}
{{- range $name, $from := $values }}
{{- if $from }}
- name: {{ printf "STREAM_METRICS_%s__%s" $table $name | upper }}
  value: {{ printf "/etc/stream-metrics/%s/%s" $table $name }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Secrets or files that a part gets, as JSON: what judges need for the model is for them alone. */}}
{{- define "stream-metrics.given" -}}
{{- $of := default dict .of }}
{{- eq .part "judge" | ternary $of (omit $of "judge") | toJson }}
{{- end }}

{{/* What the workers have in addition: their name in the group, if they keep one. */}}
{{- define "stream-metrics.membership" -}}
{{- if .Values.worker.staticMembership }}
- name: STREAM_METRICS_KAFKA__GROUP_INSTANCE_ID
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- if not (include "stream-metrics.has" (list . "kafka" "session_timeout_ms")) }}
- name: STREAM_METRICS_KAFKA__SESSION_TIMEOUT_MS
  value: "45000"
{{- end }}
{{- end }}
{{- end }}

{{/* A pod's labels and annotations: (dict "root" $ "part" "worker"). */}}
{{- define "stream-metrics.podMetadata" -}}
labels:
  {{- include "stream-metrics.selector" . | nindent 2 }}
  {{- include "stream-metrics.labels" .root | nindent 2 }}
  {{- with .root.Values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  kubectl.kubernetes.io/default-container: {{ .part }}
  {{- with .root.Values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/*
A pod's spec: (dict "root" $ "part" "worker" "args" (list …) "resources" …), and for services also
"port", "values" (of .Values.worker, .bridge or .judge) and "environment" (further variables as text).
Service links are off because of a Service called stream-metrics: Kubernetes would set
STREAM_METRICS_PORT in every pod of the namespace, which is no setting, so that nothing would start.
*/}}
{{- define "stream-metrics.podSpec" -}}
{{- $root := .root }}
{{- $values := .root.Values }}
{{- $files := include "stream-metrics.given" (dict "of" $values.files "part" .part) | fromJson }}
{{- with $values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
serviceAccountName: {{ .account | default (include "stream-metrics.serviceAccountName" $root) }}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with $values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values }}
terminationGracePeriodSeconds: {{ .terminationGracePeriodSeconds }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- if .topologySpreadConstraints }}
  {{- toYaml .topologySpreadConstraints | nindent 2 }}
  {{- else }}
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "stream-metrics.selector" $ | nindent 8 }}
  {{- end }}
  {{- end }}
{{- else }}
restartPolicy: {{ .restartPolicy | default "OnFailure" }}
{{- end }}
containers:
  - name: {{ .part }}
    image: {{ include "stream-metrics.image" $root }}
    imagePullPolicy: {{ $values.image.pullPolicy }}
    args:
      {{- toYaml .args | nindent 6 }}
    {{- with $values.securityContext }}
    securityContext:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    env:
      {{- include "stream-metrics.environment" (dict "root" $root "part" .part) | trim | nindent 6 }}
      {{- with .environment }}
      {{- . | nindent 6 }}
      {{- end }}
      {{- with $values.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- with .port }}
    ports:
      - name: http
        containerPort: {{ . }}
    {{- range $probe, $path := dict "startup" "/healthz" "liveness" "/healthz" "readiness" "/readyz" }}
    {{ $probe }}Probe:
      httpGet:
        path: {{ $path }}
        port: http
        scheme: {{ include "stream-metrics.scheme" $root | upper }}
      {{- with index $values.probes $probe }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    {{- end }}
    {{- with .resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    volumeMounts:
      - name: tmp
        mountPath: /tmp
      {{- if $files }}
      - name: files
        mountPath: /etc/stream-metrics
        readOnly: true
      {{- end }}
      {{- with $values.extraVolumeMounts }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
volumes:
  - name: tmp
    emptyDir:
      sizeLimit: 64Mi
  {{- if $files }}
  - name: files
    projected:
      defaultMode: 0440
      sources:
        {{- range $table, $names := $files }}
        {{- range $name, $from := $names }}
        {{- if $from }}
        - {{ if $from.existingSecret }}secret{{ else }}configMap{{ end }}:
            name: {{ $from.existingSecret | default $from.existingConfigMap }}
            items:
              - key: {{ $from.key }}
                path: {{ printf "%s/%s" $table $name }}
        {{- end }}
        {{- end }}
        {{- end }}
  {{- end }}
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* A bridge or a judge: (dict "root" $ "part" "bridge"). */}}
{{- define "stream-metrics.deployment" -}}
{{- $values := index .root.Values .part }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "stream-metrics.partName" . }}
  labels:
    {{- include "stream-metrics.selector" . | nindent 4 }}
    {{- include "stream-metrics.labels" .root | nindent 4 }}
spec:
  replicas: {{ $values.replicas }}
  revisionHistoryLimit: 3
  {{- with $values.updateStrategy }}
  strategy:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  selector:
    matchLabels:
      {{- include "stream-metrics.selector" . | nindent 6 }}
  template:
    metadata:
      {{- include "stream-metrics.podMetadata" . | nindent 6 }}
    spec:
      {{- include "stream-metrics.podSpec" (merge (dict "args" (list .part) "values" $values "resources" $values.resources "port" (include "stream-metrics.partPort" .)) .) | trim | nindent 6 }}
{{- end }}
