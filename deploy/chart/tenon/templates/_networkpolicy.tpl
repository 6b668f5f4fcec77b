{{- define "tenon.metrics.ingress" -}}
{{- with .root.Values.networkPolicy.metricsFrom }}
- from: {{- toYaml . | nindent 4 }}
  ports:
    - {protocol: TCP, port: {{ $.port }}}
{{- end }}
{{- end }}

{{- define "tenon.egress" -}}
- ports:
    {{- range . }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
- ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- end }}
