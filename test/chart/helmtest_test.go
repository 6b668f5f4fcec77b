package chart

import (
	"slices"
	"testing"
)

// TestHelmTestChecksTheInstallation checks the pod of helm test: it runs the command of
// the manager's image with what the chart installs, and every object of it is a hook
// that leaves nothing behind.
func TestHelmTestChecksTheInstallation(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]any
		want   []any
	}{
		"default":    {nil, []any{"check", "--daemonset=tenon-system/tenond", "--config-map=tenon-system/slo-controller-config", "--webhooks=true", "--timeout=3m"}},
		"everything": {allOptions(), []any{"check", "--daemonset=tenon-system/tenond", "--config-map=koordinator-system/slo-controller-config", "--webhooks=true", "--timeout=3m"}},
		"nothing":    {noOptions(), []any{"check", "--daemonset=tenon-system/tenond", "--config-map=tenon-system/slo-controller-config", "--webhooks=false", "--timeout=3m"}},
	} {
		all := mustRender(t, c.values)
		pod := all["Pod tenon-check"]
		if args, _ := containers(pod)[0].value("args").([]any); !slices.Equal(args, c.want) {
			t.Errorf("%s: the pod runs %v", name, args)
		}
		if image := containers(pod)[0].str("image"); image != containers(all["Deployment tenon-manager"])[0].str("image") {
			t.Errorf("%s: the pod has the image %s", name, image)
		}
		for key, d := range all {
			of := d.str("metadata", "name") == "tenon-check" || d.str("metadata", "name") == "tenon-check-config"
			if is := d.str("metadata", "annotations", "helm.sh/hook") == "test"; is != of {
				t.Errorf("%s: %s is a part of helm test: %t", name, key, is)
			}
			if of && d.str("metadata", "annotations", "helm.sh/hook-delete-policy") != "before-hook-creation,hook-succeeded" {
				t.Errorf("%s: helm test leaves %s", name, key)
			}
		}
	}
}
