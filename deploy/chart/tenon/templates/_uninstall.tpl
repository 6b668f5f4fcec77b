{{/* The objects of the removal; the argument is their weight. Helm runs them before it
deletes anything. Argo CD goes by its own annotations alone: there they run after
everything else is deleted. */}}
{{- define "tenon.uninstall.hook" -}}
helm.sh/hook: pre-delete
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
argocd.argoproj.io/hook: PostDelete
argocd.argoproj.io/hook-delete-policy: BeforeHookCreation,HookSucceeded
{{- end }}
