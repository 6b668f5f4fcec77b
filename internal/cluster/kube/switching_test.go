package kube

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/model/node"
)

// TestAnnotationsThatKoordinatorAcceptsCount checks values and spellings that
// Koordinator accepts in annotations. Each must have an effect or cause a
// warning. The other keys of the annotation must still have their effect.
func TestAnnotationsThatKoordinatorAcceptsCount(t *testing.T) {
	for name, tc := range map[string]struct {
		key, text string
		holds     func(node.Overrides) bool
		warning   string
	}{
		"a switch": {AnnotationMemoryQOS, `{"policy":"auto","minLimitPercent":50,"pageCacheEnable":true}`,
			func(o node.Overrides) bool { return o.Memory.MinPercent.Or(0) == 50 }, ""},
		"an empty policy": {AnnotationMemoryQOS, `{"policy":"","minLimitPercent":50}`,
			func(o node.Overrides) bool { return o.Memory.MinPercent.Or(0) == 50 && !o.Memory.OwnOnly }, ""},
		"a key in another case": {AnnotationBlkIOQOS, `{"blocks":[{"name":"/dev/vdb","type":"device","iocfg":{"readBPS":1048576,"writeIOPS":100}}]}`,
			func(o node.Overrides) bool {
				return len(o.IO) == 1 && o.IO[0].ReadBPS == 1048576 && o.IO[0].WriteIOPS == 100
			},
			"blocks[0].iocfg: counts as ioCfg: want this spelling"},
		"a weight of 0": {AnnotationBlkIOQOS, `{"blocks":[{"name":"/dev/vdb","ioCfg":{"readBPS":1,"ioWeightPercent":0}}]}`,
			func(o node.Overrides) bool { return len(o.IO) == 1 && o.IO[0].WeightPercent == 0 },
			"blocks[0].ioCfg.ioWeightPercent: 0: want a whole number from 1 to 100; it counts as not set"},
		"a feature that is misspelt": {AnnotationEvictionPolicy, `["BECPUEvct","BEMemoryEvict"]`,
			func(o node.Overrides) bool { return slices.Equal(o.EvictionExemptFrom, []string{"cpu"}) },
			`[0]: "BECPUEvct": unknown feature: did you mean BECPUEvict?`},
		"a key of resource-spec that is misspelt": {AnnotationResourceSpec, `{"preferedCPUBindPolicy":"FullPCPUs"}`,
			func(node.Overrides) bool { return true },
			"preferedCPUBindPolicy: unknown key: did you mean preferredCPUBindPolicy?"},
	} {
		t.Run(name, func(t *testing.T) {
			p := corev1.Pod{}
			p.Labels = map[string]string{LabelQOSClass: "LS"}
			p.Annotations = map[string]string{tc.key: tc.text}
			o, faults := OverridesOf(&p)
			faults = append(faults, Faults(&p)...)
			if !tc.holds(o) {
				t.Errorf("overrides %+v", o)
			}
			if makesInvalid(faults) {
				t.Errorf("faults %q", faults)
			}
			if tc.warning != "" && !slices.ContainsFunc(faults, func(f Fault) bool { return strings.HasSuffix(f.String(), tc.warning) }) {
				t.Errorf("warnings %q, want %q", faults, tc.warning)
			}
		})
	}
}

// TestAKeyOfNamespacesThatIsMisspeltIsAWarning checks that the other keys of
// ack-slo-pod-config have an effect.
func TestAKeyOfNamespacesThatIsMisspeltIsAWarning(t *testing.T) {
	n, faults := ParseNamespaces(map[string]string{"cpu-burst": `{"EnabledNamespaces":["a"],"disabledNamespace":["b"]}`, "memory-qs": `{}`})
	if !slices.Equal(n.CPUBurst.Enabled, []string{"a"}) || makesInvalid(faults) {
		t.Errorf("%+v, %q", n, faults)
	}
	var all []string
	for _, f := range faults {
		all = append(all, f.String())
	}
	for _, want := range []string{
		"cpu-burst: EnabledNamespaces: counts as enabledNamespaces: want this spelling",
		"cpu-burst: disabledNamespace: unknown key: did you mean disabledNamespaces?",
		"memory-qs: unknown key: did you mean memory-qos?",
	} {
		if !slices.Contains(all, want) {
			t.Errorf("%q is missing in %q", want, all)
		}
	}
}
