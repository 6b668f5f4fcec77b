package manager

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/model/unit"
)

// anAmount returns the text of a random quantity, in any form that the API
// server takes, of 1/1,000,000,000 to most.
func anAmount(rnd *rand.Rand, most int64) string {
	for {
		number := strconv.FormatInt(rnd.Int64N(1<<(1+rnd.IntN(50))), 10)
		if at := rnd.IntN(2 * len(number)); at < len(number) {
			number = number[:at] + "." + number[at:]
		}
		all := []string{"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e-7", "E3", "e+9", "e1"}
		text := number + all[rnd.IntN(len(all))]
		if v, is := unit.ParseQuantity(text, 1, unit.Up); is && v > 0 && v <= most {
			return text
		}
	}
}

// TestAnyQuantityThatTheAPIServerTakesIsCounted sends quantities in all forms to
// a real API server: in pods, which pass the webhooks, and in the status of a
// node. What comes back counts within one unit. Requests and limits are rounded
// up, and what pods may use of a node is rounded down. The webhooks refuse
// nothing that the API server takes.
func TestAnyQuantityThatTheAPIServerTakesIsCounted(t *testing.T) {
	s := newScene(t)
	s.start(s.webhooks)
	s.awaitTrust()
	rnd := rand.New(rand.NewPCG(7, 8))
	for range 120 {
		cpu, memory := anAmount(rnd, 1<<19), anAmount(rnd, 1<<50)
		for _, class := range []string{"BE", "LS"} {
			p, err := s.created(class, cpu, memory)
			if err != nil {
				t.Errorf("%s: cpu %s, memory %s: %v", class, cpu, memory, err)
				continue
			}
			is := kube.Native(p)
			if class == "BE" {
				is = kube.Batch(p)
			}
			c, _ := unit.ParseQuantity(cpu, 1000, unit.Up)
			m, _ := unit.ParseQuantity(memory, 1, unit.Up)
			if got := [4]int64{int64(is.CPURequest.Or(0)), int64(is.CPULimit.Or(0)), int64(is.MemoryRequest.Or(0)), int64(is.MemoryLimit.Or(0))}; got != [4]int64{c, c, m, m} {
				t.Errorf("%s: cpu %s, memory %s: counted %d, want %d and %d", class, cpu, memory, got, c, m)
			}
			for name, q := range p.Spec.Containers[0].Resources.Limits {
				if kube.IsBatch(name) && (strings.HasSuffix(q.String(), "m") || q.Sign() <= 0) {
					t.Errorf("%s: %s is no whole number of %s", cpu, q.String(), name)
				}
			}
		}
	}
	s.node("n1")
	for range 60 {
		cpu, memory := anAmount(rnd, 16), anAmount(rnd, 64<<30)
		s.allocatable("n1", cpu, memory)
		var n corev1.Node
		s.must(s.client.Get(s.ctx, client.ObjectKey{Name: "n1"}, &n))
		f := factsOf(&n)
		// The API server rounds an amount up to thousandths of its unit.
		for k, text := range [kinds]string{cpu, memory} {
			left, _ := unit.ParseQuantity(text, [kinds]int64{1000, 1}[k], unit.Down)
			if got := f.Capacity[k] - f.Reserved[k]; got < left || got > left+1 {
				t.Errorf("allocatable %s: %v counts %d, want %d", text, kind(k), got, left)
			}
		}
	}
	s.allocatable("n1", "15499500u", "68397354188800m")
	s.report("n1", batchOf(4000, 4))
	s.becomes("n1", "5100m "+mem4, soon) // the API server rounds CPUs up to thousandths
	for name, text := range map[string]string{"more CPUs than any machine": "3M", "an exponent": "2e6"} {
		if _, err := s.created("BE", text, "1Gi"); err == nil || !strings.Contains(err.Error(), "0 to ") {
			t.Errorf("%s: %v, want a refusal with the range", name, err)
		}
	}
}

// created returns what comes back for a pod of class BE with these texts as
// requests and limits.
func (s *scene) created(class, cpu, memory string) (*corev1.Pod, error) {
	s.t.Helper()
	list := map[string]any{"cpu": cpu, "memory": memory}
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"namespace": "default", "name": fmt.Sprintf("%s-%d", s.name, s.serials.Add(1)), "labels": map[string]any{kube.LabelQOSClass: class}},
		"spec": map[string]any{"containers": []any{map[string]any{
			"name": "main", "image": "none", "resources": map[string]any{"requests": list, "limits": list},
		}}},
	}}
	err := s.client.Create(s.ctx, u, client.DryRunAll)
	if apierrors.IsInvalid(err) {
		s.t.Errorf("the API server itself refuses %s and %s: %v", cpu, memory, err)
	}
	if err != nil {
		return nil, err
	}
	p := &corev1.Pod{}
	return p, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, p)
}

// allocatable sets what a node has for pods, as its kubelet does.
func (s *scene) allocatable(name, cpu, memory string) {
	s.t.Helper()
	patch := fmt.Sprintf(`{"status":{"allocatable":{"cpu":%q,"memory":%q}}}`, cpu, memory)
	n := &corev1.Node{}
	n.Name = name
	s.must(s.client.Status().Patch(s.ctx, n, client.RawPatch(types.MergePatchType, []byte(patch))))
}
