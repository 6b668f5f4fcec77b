package admission

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/quantity"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/model/unit"
)

// TestWhatTenonTranslatesIsAdmitted creates pods of class BE whose amounts are
// no whole number of bytes or of thousandths of a CPU. Autoscalers write such
// amounts, and Kubernetes takes them. The batch resources are rounded up.
func TestWhatTenonTranslatesIsAdmitted(t *testing.T) {
	for memory, want := range map[string]int64{
		"0.8Gi": 858993460, "1.1Gi": 1181116007, "0.1Gi": 107374183, "0.5Gi": 512 << 20, "731815514666m": 731815515, "1e9": 1e9, "1000000001n": 2, "100000000.0000001": 100000001,
	} {
		for form, make := range map[string]func(list corev1.ResourceList) *corev1.Pod{
			"limits":   func(l corev1.ResourceList) *corev1.Pod { return wholePod(nil, l) },
			"requests": func(l corev1.ResourceList) *corev1.Pod { return wholePod(l, nil) },
			"both":     func(l corev1.ResourceList) *corev1.Pod { return wholePod(l, l) },
			"batch itself": func(l corev1.ResourceList) *corev1.Pod {
				return wholePod(nil, corev1.ResourceList{kube.BatchMemory: l["memory"]})
			},
			"old name": func(l corev1.ResourceList) *corev1.Pod {
				return wholePod(nil, corev1.ResourceList{"koordinator.sh/batch-memory": l["memory"]})
			},
			"replaced": func(l corev1.ResourceList) *corev1.Pod {
				p := wholePod(l, l)
				p.Annotations = map[string]string{AnnotationReplace: "cpu:kubernetes.io/batch-cpu,memory:kubernetes.io/batch-memory"}
				return p
			},
		} {
			p := make(corev1.ResourceList{"cpu": resource.MustParse("1000500u"), "memory": resource.MustParse(memory)})
			out, v := Mutate(Request{Pod: p})
			verdict := ValidateCreate(out, tenant.Namespace{}, false, Ranges{})
			limit, cpu := out.Spec.Containers[0].Resources.Limits[kube.BatchMemory], out.Spec.Containers[0].Resources.Limits[kube.BatchCPU]
			if refused := append(v.Refusals, verdict.Refusals...); len(refused) > 0 {
				t.Errorf("%s: memory %s: refused: %v", form, memory, refused)
			}
			if limit.CmpInt64(want) != 0 || strings.HasSuffix(limit.String(), "m") || cpu.Sign() != 0 && cpu.String() != "1001" {
				t.Errorf("%s: memory %s: batch-memory %s, want %d; batch-cpu %s, want 1001", form, memory, limit.String(), want, cpu.String())
			}
		}
	}
}

func wholePod(requests, limits corev1.ResourceList) *corev1.Pod {
	p := &corev1.Pod{}
	p.Labels = map[string]string{kube.LabelQOSClass: "BE"}
	p.Spec.Containers = []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: requests.DeepCopy(), Limits: limits.DeepCopy()}}}
	return p
}

// TestAnyAmountIsTranslatedWithinOneUnit translates random amounts, also by a
// profile that gives mid resources. The result is a whole number, less than one
// unit above the amount, and a request is at most its limit.
func TestAnyAmountIsTranslatedWithinOneUnit(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	suffixes := []string{"", "n", "u", "m", "k", "M", "G", "T", "Ki", "Mi", "Gi", "e1", "e-3", "E2"}
	for range 5_000 {
		limits, requests := corev1.ResourceList{}, corev1.ResourceList{}
		for name, most := range map[corev1.ResourceName]resource.Quantity{"cpu": maxCPUs, "memory": resource.MustParse("1Ti")} {
			q := resource.MustParse(fmt.Sprintf("%d.%d%s", rnd.IntN(1<<rnd.IntN(20)), rnd.IntN(1000), suffixes[rnd.IntN(len(suffixes))]))
			if q.Sign() == 0 || q.Cmp(most) > 0 {
				q = resource.MustParse("0.7")
			}
			limits[name], requests[name] = q, q
		}
		p, k := wholePod(requests, limits), batch
		r := Request{Pod: p}
		if rnd.IntN(2) == 0 {
			k = mid
			delete(p.Labels, kube.LabelQOSClass)
			profile := configv1alpha1.ClusterColocationProfile{Spec: configv1alpha1.ClusterColocationProfileSpec{Labels: map[string]string{kube.LabelPriorityClass: "koord-mid"}}}
			r.Profiles = []configv1alpha1.ClusterColocationProfile{profile}
		}
		out, v := Mutate(r)
		if refused := append(v.Refusals, ValidateCreate(out, tenant.Namespace{}, false, Ranges{}).Refusals...); len(refused) > 0 {
			t.Fatalf("%v: refused: %v", limits, refused)
		}
		for _, list := range []corev1.ResourceList{out.Spec.Containers[0].Resources.Limits, out.Spec.Containers[0].Resources.Requests} {
			cpu, memory := list[k.cpu], list[k.memory]
			asked, bytes := limits["cpu"], limits["memory"]
			if quantity.Whole(cpu, unit.Down) != int64(quantity.CPU(asked, unit.Up)) || quantity.Whole(memory, unit.Down) != quantity.Whole(bytes, unit.Up) || len(list) != 2 {
				t.Fatalf("%v became %v", limits, list)
			}
		}
	}
}
