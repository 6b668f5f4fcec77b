{{/* transcoder.milli turns an amount of CPU into milli-CPUs: dict "name" KEY "q" AMOUNT. */}}
{{- define "transcoder.milli" -}}
{{- $q := toString .q -}}
{{- if not (regexMatch `^[0-9]+(\.[0-9]+)?m?$` $q) -}}
{{- fail (printf "%s: %q: want an amount of CPU such as 4, 0.8 or 800m" .name $q) -}}
{{- end -}}
{{- if hasSuffix "m" $q -}}
{{- trimSuffix "m" $q | float64 | ceil | int64 -}}
{{- else -}}
{{- mulf (float64 $q) 1000 | ceil | int64 -}}
{{- end -}}
{{- end }}

{{/* transcoder.cpu prints milli-CPUs. */}}
{{- define "transcoder.cpu" -}}
{{- $milli := int64 . -}}
{{- if eq (mod $milli 1000) 0 -}}{{ div $milli 1000 }}{{- else -}}{{ $milli }}m{{- end -}}
{{- end }}

{{/* transcoder.memory prints an amount of memory, a fraction as bytes: the API server warns about fractional bytes. */}}
{{- define "transcoder.memory" -}}
{{- $q := toString . -}}
{{- if not (regexMatch `^[0-9]+(\.[0-9]+)?(Ki|Mi|Gi|Ti|k|M|G|T)?$` $q) -}}
{{- fail (printf "resources.requests.memory: %q: want an amount of memory such as 8Gi or 0.8Gi" $q) -}}
{{- end -}}
{{- if contains "." $q -}}
{{- $number := regexFind `^[0-9.]+` $q -}}
{{- $scale := dict "" 1 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 -}}
{{- mulf (float64 $number) (float64 (get $scale (trimPrefix $number $q))) | ceil | int64 -}}
{{- else -}}
{{- $q -}}
{{- end -}}
{{- end }}

{{/* transcoder.limit prints the CPU limit of a job by the rule .Values.burst; nothing: no limit. */}}
{{- define "transcoder.limit" -}}
{{- $rule := toString .Values.burst -}}
{{- $request := include "transcoder.milli" (dict "name" "resources.requests.cpu" "q" .Values.resources.requests.cpu) | int64 -}}
{{- if eq $rule "false" -}}
{{- .Values.resources.requests.cpu -}}
{{- else if eq $rule "double" -}}
{{- include "transcoder.cpu" (mul 2 $request) -}}
{{- else if or (eq $rule "published") (eq $rule "true") -}}
{{- include "transcoder.cpu" (max (mul 2 $request) 8000) -}}
{{- else if eq $rule "max" -}}
{{- $most := include "transcoder.milli" (dict "name" "resources.max.cpu" "q" .Values.resources.max.cpu) | int64 -}}
{{- include "transcoder.cpu" (max $request $most) -}}
{{- end -}}
{{- end }}

{{/* transcoder.name is the published part of all names: TYPE-PARALLELISM-CPU-MEMORY. */}}
{{- define "transcoder.name" -}}
{{- if not (regexMatch `^[A-Za-z0-9]+$` .Values.type) -}}
{{- fail (printf "type: %q: want letters and digits: the names of jobs are cut at each \"-\", so that another one would shift every column of the table" .Values.type) -}}
{{- end -}}
{{- $cpu := toString .Values.resources.requests.cpu -}}
{{- $memory := toString .Values.resources.requests.memory -}}
{{- if eq .Values.kind "indexed" -}}
{{- $cpu = printf "%sm" (include "transcoder.milli" (dict "name" "resources.requests.cpu" "q" $cpu)) -}}
{{- $memory = include "transcoder.memory" $memory -}}
{{- end -}}
{{- printf "%s-%d-%s-%s" .Values.type (int .Values.parallelism) $cpu $memory | lower -}}
{{- end }}

{{/* transcoder.film is the name of the film of a job: dict "Values" VALUES "job" NUMBER. */}}
{{- define "transcoder.film" -}}
{{- $rule := toString .Values.multiSource -}}
{{- $parallelism := int .Values.parallelism -}}
{{- if eq $rule "published" -}}
source{{ add 1 (mod 23 (add 1 (mod $parallelism (add .job 1)))) }}.mp4
{{- else if eq $rule "true" -}}
source{{ add 1 (mod .job (int .Values.sources)) }}.mp4
{{- else -}}
{{ .Values.defaultSource }}
{{- end -}}
{{- end }}

{{/* transcoder.indexedFilm sets $film in a shell to the film of an indexed job. */}}
{{- define "transcoder.indexedFilm" -}}
{{- $rule := toString .Values.multiSource -}}
{{- if eq $rule "published" -}}
film=source$((1 + 23 % (1 + {{ int .Values.parallelism }} % (JOB_COMPLETION_INDEX + 1)))).mp4
{{- else if eq $rule "true" -}}
film=source$((1 + JOB_COMPLETION_INDEX % {{ int .Values.sources }})).mp4
{{- else -}}
film='{{ .Values.defaultSource }}'
{{- end -}}
{{- end }}

{{/* transcoder.place says where the films are: url, hostPath, image or path. */}}
{{- define "transcoder.place" -}}
{{- $set := list -}}
{{- range $key := list "url" "hostPath" "image" "path" -}}
{{- if get $.Values.source $key }}{{ $set = append $set $key }}{{ end -}}
{{- end -}}
{{- if ne (len $set) 1 -}}
{{- fail (printf "source: want exactly one of url, hostPath, image and path, and %d are set%s: set the others to \"\"" (len $set) (ternary "" (printf " (%s)" (join ", " $set)) (empty $set))) -}}
{{- end -}}
{{- first $set -}}
{{- end }}

{{/*
transcoder.pod is the pod template of a job: dict "Values" VALUES "job" NUMBER. Huge pages and extended resources
get an equal limit, because the API server refuses their requests without one.
*/}}
{{- define "transcoder.pod" -}}
{{- $indexed := eq .Values.kind "indexed" -}}
{{- $place := include "transcoder.place" . -}}
{{- $number := ternary "$(JOB_COMPLETION_INDEX)" (toString .job) $indexed -}}
{{- $shell := and $indexed (ne (toString .Values.multiSource) "false") (empty .Values.args) -}}
{{- $in := ternary .Values.source.path "/data" (eq $place "path") -}}
{{- $out := ternary "/data" "/output" (has $place (list "url" "hostPath")) -}}
{{- $film := include "transcoder.film" . -}}
{{- $threads := toString .Values.threads -}}
{{- if eq $threads "limit" }}{{ $threads = "$(CPU_LIMIT)" }}{{ end -}}
{{- $args := list "-stats" "-c:v" "libx264" "-s" "1920x1080" "-crf" "22" "-profile:v" "main" "-pix_fmt" "yuv420p" "-threads" $threads "-f" "mp4" "-ac" "2" "-c:a" "aac" "-b:a" "128k" "-strict" "-2" (printf "%s/output-%s.mp4" $out $number) -}}
{{- if not $shell }}{{ $args = concat (list "-y" "-i" (printf "%s/%s" $in $film)) $args }}{{ end -}}
{{- if .Values.args }}{{ $args = .Values.args }}{{ end -}}
metadata:
  labels:
    role: transcoder
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  restartPolicy: Never
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- if eq $place "url" }}
  initContainers:
    - name: film
      image: {{ .Values.source.fetchImage }}
      imagePullPolicy: {{ .Values.imagePullPolicy }}
      command:
        - sh
        - -c
        {{- if $indexed }}
        - {{ printf "%s; exec wget -O \"/data/$film\" %s/\"$film\"" (include "transcoder.indexedFilm" .) (.Values.source.url | trimSuffix "/" | squote) | quote }}
        {{- else }}
        - {{ printf "exec wget -O '/data/%s' '%s/%s'" $film (.Values.source.url | trimSuffix "/") $film | quote }}
        {{- end }}
      {{- with .Values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        - {name: data, mountPath: /data}
  {{- end }}
  containers:
    - name: transcoder-{{ .job }}
      image: {{ .Values.image }}
      imagePullPolicy: {{ .Values.imagePullPolicy }}
      {{- if $shell }}
      command:
        - sh
        - -c
        - {{ printf "%s; exec %s -y -i %s/\"$film\" \"$@\"" (include "transcoder.indexedFilm" .) (squote .Values.program) (squote $in) | quote }}
        - transcoder
      {{- end }}
      args:
        {{- range $args }}
        - {{ toString . | quote }}
        {{- end }}
      {{- if eq (toString .Values.threads) "limit" }}
      env:
        - name: CPU_LIMIT
          valueFrom: {resourceFieldRef: {containerName: transcoder-{{ .job }}, resource: limits.cpu}}
      {{- end }}
      resources:
        {{- $memory := include "transcoder.memory" .Values.resources.requests.memory }}
        requests:
          {{- toYaml (set (deepCopy .Values.resources.requests) "memory" $memory) | nindent 10 }}
        limits:
          {{- with include "transcoder.limit" . }}
          cpu: {{ . | quote }}
          {{- end }}
          memory: {{ $memory | quote }}
          {{- range $name, $amount := .Values.resources.requests }}
          {{- if or (hasPrefix "hugepages-" $name) (and (contains "/" $name) (not (contains "kubernetes.io/" $name))) }}
          {{ $name }}: {{ toJson $amount }}
          {{- end }}
          {{- end }}
      {{- with .Values.securityContext }}
      securityContext:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      volumeMounts:
        {{- if ne $place "path" }}
        - {name: data, mountPath: /data}
        {{- end }}
        {{- if eq $out "/output" }}
        - {name: output, mountPath: /output}
        {{- end }}
  volumes:
    {{- if eq $place "url" }}
    - {name: data, emptyDir: {}}
    {{- else if eq $place "hostPath" }}
    - name: data
      hostPath: {path: {{ .Values.source.hostPath | quote }}}
    {{- else if eq $place "image" }}
    - name: data
      image: {reference: {{ .Values.source.image | quote }}, pullPolicy: {{ .Values.imagePullPolicy }}}
    {{- end }}
    {{- if eq $out "/output" }}
    - {name: output, emptyDir: {}}
    {{- end }}
{{- end }}
