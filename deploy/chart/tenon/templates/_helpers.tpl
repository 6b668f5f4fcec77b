{{/* The labels of everything; they go before commonLabels. */}}
{{- define "tenon.labels" -}}
{{- $own := dict
  "app.kubernetes.io/part-of" "tenon"
  "app.kubernetes.io/instance" .Release.Name
  "app.kubernetes.io/version" (include "tenon.tag" .)
  "app.kubernetes.io/managed-by" .Release.Service
  "helm.sh/chart" (printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_")) }}
{{- toYaml (merge $own .Values.commonLabels) }}
{{- end }}

{{/* The labels of a pod, beside those by which it is found. "of" has the values of its
program, which go before commonLabels. */}}
{{- define "tenon.podLabels" -}}
{{- $own := dict "app.kubernetes.io/part-of" "tenon" "app.kubernetes.io/version" (include "tenon.tag" .root) }}
{{- toYaml (merge $own (.of.podLabels | default dict) .root.Values.commonLabels) }}
{{- end }}

{{/* Whether Tenon manages the nodes, or only observes them. An older chart has no mode:
helm upgrade --reuse-values. */}}
{{- define "tenon.manages" -}}
{{ eq (.Values.mode | default "manage") "manage" | ternary "true" "" }}
{{- end }}

{{/* By what the pods of a product are found; it may never change. */}}
{{- define "tenon.selector.agent" -}}
app.kubernetes.io/name: tenond
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "tenon.selector.manager" -}}
app.kubernetes.io/name: tenon-manager
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "tenon.selector.scheduler" -}}
app.kubernetes.io/name: tenon-scheduler
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "tenon.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}
{{- define "tenon.registry" -}}
{{- if not .of.image.repository -}}
{{ required "image.registry: the registry to which the images of Tenon were pushed (docs/install.md)" .root.Values.image.registry }}
{{- end }}
{{- end }}
{{/* The image of a program: "of" has its values, and "name" is its name. */}}
{{- define "tenon.image" -}}
{{- $name := .of.image.repository | default (printf "%s/%s" (include "tenon.registry" .) .name) -}}
{{- if .of.image.digest -}}
{{ $name }}@{{ .of.image.digest }}
{{- else -}}
{{ $name }}:{{ .of.image.tag | default (include "tenon.tag" .root) }}
{{- end }}
{{- end }}
{{- define "tenon.image.agent" -}}
{{ include "tenon.image" (dict "root" . "of" .Values.agent "name" "tenond") }}
{{- end }}
{{- define "tenon.image.manager" -}}
{{ include "tenon.image" (dict "root" . "of" .Values.manager "name" "tenon-manager") }}
{{- end }}
{{- define "tenon.image.scheduler" -}}
{{ include "tenon.image" (dict "root" . "of" .Values.scheduler "name" "tenon-scheduler") }}
{{- end }}

{{- define "tenon.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "tenon.capabilities.agent" -}}
{{- $all := .Values.agent.capabilities }}
{{- if .Values.agent.sysAdmin }}
{{- $all = prepend $all "SYS_ADMIN" }}
{{- end }}
{{- if not (include "tenon.manages" .) }}
{{- /* To trace run-queue delays, and nothing else. */}}
{{- $all = list "BPF" "PERFMON" }}
{{- end }}
{{- $all | uniq | toJson }}
{{- end }}

{{/* A mount of the node's control files: read-only if Tenon observes. On cgroup v1 the
hierarchies are mounts below it, which only recursiveReadOnly covers. */}}
{{- define "tenon.mount.control" -}}
{{- $mount := dict "name" .name "mountPath" .path }}
{{- if not (include "tenon.manages" .root) }}
{{- $_ := set $mount "readOnly" true }}
{{- if semverCompare ">=1.31-0" .root.Capabilities.KubeVersion.Version }}
{{- $_ := set $mount "recursiveReadOnly" "IfPossible" }}
{{- end }}
{{- end }}
{{- toJson $mount }}
{{- end }}

{{/* The names of the ServiceAccounts. */}}
{{- define "tenon.account.agent" -}}
{{ .Values.agent.serviceAccount.name | default "tenond" }}
{{- end }}
{{- define "tenon.account.manager" -}}
{{ .Values.manager.serviceAccount.name | default "tenon-manager" }}
{{- end }}
{{- define "tenon.account.scheduler" -}}
{{ .Values.scheduler.serviceAccount.name | default "tenon-scheduler" }}
{{- end }}

{{/* Constraints that do not say which pods they count get the labels of "pods". */}}
{{- define "tenon.topologySpread" -}}
{{- with .of.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
{{- $constraint := . }}
{{- if not (hasKey . "labelSelector") }}
{{- $constraint = merge (dict "labelSelector" (dict "matchLabels" (fromYaml $.pods))) . }}
{{- end }}
  - {{- toYaml $constraint | nindent 4 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Where the ConfigMap with the strategies is. */}}
{{- define "tenon.config.namespace" -}}
{{ .Values.config.namespace | default .Release.Namespace }}
{{- end }}

{{/* Namespaces whose pods are left alone: Tenon's must start without it. */}}
{{- define "tenon.excluded" -}}
{{- append .Values.webhooks.excludedNamespaces .Release.Namespace | uniq | toJson }}
{{- end }}

{{/* The name of an agent for the API server. */}}
{{- define "tenon.manager.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "tenon.account.manager" . }}
{{- end }}

{{- define "tenon.agent.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:{{ include "tenon.account.agent" . }}
{{- end }}

{{/* Whether the agents keep a history: an observer does always, because the report needs it. */}}
{{- define "tenon.history" -}}
{{- if or (.Values.agent.history | default dict).enabled (not (include "tenon.manages" .)) }}true{{ end }}
{{- end }}

{{/* The folder of the history: without a configuration, where tenond --observe keeps it.
An older chart has no such values: helm upgrade --reuse-values. */}}
{{- define "tenon.history.path" -}}
{{- $history := .Values.agent.history | default dict -}}
{{ ternary (get $history "hostPath") "" ($history.enabled | default false) | default "/var/lib/tenon/history" }}
{{- end }}

{{/* The tenon.yaml of the agents; empty: they have none. */}}
{{- define "tenon.agent.config" -}}
{{- $history := .Values.agent.history | default dict -}}
{{- if not $history.enabled -}}
{{- .Values.agent.config -}}
{{- else if or (hasKey (fromYaml .Values.agent.config) "history") (hasPrefix "{" (trim .Values.agent.config)) -}}
{{- fail "agent.history.enabled: the chart adds the key history to agent.config, which must have no such key, and must not be JSON" -}}
{{- else -}}
{{- .Values.agent.config | default "apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig" | trimSuffix "\n" }}
history:
  directory: {{ include "tenon.history.path" . | quote }}
  size: {{ $history.size | default "32Mi" }}
{{ end }}
{{- end }}
