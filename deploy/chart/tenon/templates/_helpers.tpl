{{/* The labels of everything. */}}
{{- define "tenon.labels" -}}
app.kubernetes.io/part-of: tenon
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ include "tenon.tag" . | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version | replace "+" "_" }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The labels of a pod, beside those by which it is found. */}}
{{- define "tenon.podLabels" -}}
app.kubernetes.io/part-of: tenon
app.kubernetes.io/version: {{ include "tenon.tag" . | quote }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
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
{{- define "tenon.image.agent" -}}
{{ .Values.image.registry }}/tenond:{{ include "tenon.tag" . }}
{{- end }}
{{- define "tenon.image.manager" -}}
{{ .Values.image.registry }}/tenon-manager:{{ include "tenon.tag" . }}
{{- end }}
{{- define "tenon.image.scheduler" -}}
{{ .Values.image.registry }}/tenon-scheduler:{{ include "tenon.tag" . }}
{{- end }}

{{- define "tenon.pullSecrets" -}}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
{{- range . }}
  - name: {{ . }}
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
{{- define "tenon.agent.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:tenond
{{- end }}

{{/* Whether Deployments have disruption budgets; empty: no. On the only node of a
cluster, the replacement of an evicted replica has no other place, so a budget
would make a drain wait forever. */}}
{{- define "tenon.budgets" -}}
{{- if ne (len (default list (lookup "v1" "Node" "" "").items)) 1 }}yes{{ end }}
{{- end }}
