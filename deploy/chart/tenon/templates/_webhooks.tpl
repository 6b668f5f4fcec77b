{{/* What all webhooks have. */}}
{{- define "tenon.webhook" -}}
admissionReviewVersions: [v1]
sideEffects: None
matchPolicy: Equivalent
failurePolicy: {{ .failure }}
# A webhook whose failure is ignored gets a shorter timeout.
timeoutSeconds: {{ eq .failure "Fail" | ternary 10 3 }}
clientConfig:
  service: {name: tenon-manager, namespace: {{ .root.Release.Namespace }}, port: 443, path: {{ .path }}}
{{- end }}

{{/* Pods and namespaces that Tenon does not leave alone. */}}
{{- define "tenon.webhook.managed" -}}
matchExpressions:
  - {key: tenon.sh/ignore, operator: NotIn, values: ["true"]}
{{- end }}

{{- define "tenon.webhook.be" -}}
matchLabels: {koordinator.sh/qosClass: BE}
{{ include "tenon.webhook.managed" . }}
{{- end }}

{{- define "tenon.webhook.required" -}}
matchLabels: {tenon.sh/require-admission: "true"}
{{ include "tenon.webhook.managed" . }}
{{- end }}

{{- define "tenon.webhook.others" -}}
matchExpressions:
  - {key: koordinator.sh/qosClass, operator: NotIn, values: [BE]}
  - {key: tenon.sh/ignore, operator: NotIn, values: ["true"]}
{{- end }}

{{- define "tenon.webhook.optional" -}}
matchExpressions:
  - {key: tenon.sh/require-admission, operator: NotIn, values: ["true"]}
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: {{ include "tenon.excluded" . }}}
  - {key: tenon.sh/ignore, operator: NotIn, values: ["true"]}
{{- end }}

{{/* Whether a label or annotation was changed, added or removed. */}}
{{- define "tenon.webhook.changes" -}}
{{- $or := "" }}
{{- range .keys }}{{ $or }}object.metadata.?{{ $.field }}[?'{{ . }}'] != oldObject.metadata.?{{ $.field }}[?'{{ . }}']{{ $or = " || " }}{{ end }}
{{- end }}

{{/* Whether a pod has a label, an annotation or a resource that Tenon reads, or a priority of Koordinator's classes. */}}
{{- define "tenon.webhook.speaks" -}}
[object.metadata.?labels.orValue({}), object.metadata.?annotations.orValue({})].exists(m, m.exists(k, k.contains('koordinator.sh/') || k.startsWith('alibabacloud.com/') || k == 'cpuset-scheduler' || k == 'cpu-policy' || k == 'tenon.sh/objective' || k == 'tenon.sh/ignore')) || object.spec.?priority.orValue(0) >= 3000 && object.spec.?priority.orValue(0) <= 9999 || (object.spec.containers + object.spec.?initContainers.orValue([])).exists(c, [c.?resources.?requests.orValue({}), c.?resources.?limits.orValue({})].exists(l, l.exists(n, n.contains('koordinator.sh/') || n.startsWith('alibabacloud.com/') || n.startsWith('kubernetes.io/batch-') || n.startsWith('kubernetes.io/mid-'))))
{{- end }}
