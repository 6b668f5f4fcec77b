package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/rollouts"
	"tenon.sh/tenon/internal/decide/rollout"
	"tenon.sh/tenon/internal/model/unit"
)

// TestARolloutIsPrinted has none, one in the namespace of the manager's Lease, and a
// state that is damaged.
func TestARolloutIsPrinted(t *testing.T) {
	const record = "/api/v1/namespaces/tools/configmaps/tenon-rollout"
	c := rollout.Config{Margin: 10, Shares: []unit.Percent{5, 100}, Epoch: 30 * time.Minute}
	s, _, _ := rollout.Step(c, rollout.State{}, rollout.Block{}, nil, time.Date(2026, 3, 1, 11, 0, 0, 0, time.UTC), 7)
	objectOf := func(data map[string]string) string {
		text, err := json.Marshal(corev1.ConfigMap{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "tools", Name: rollouts.Name}, Data: data,
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	data, err := rollouts.Data(s)
	if err != nil {
		t.Fatal(err)
	}
	lease := strings.Replace(leases, `"items": [`, `"items": [{"metadata": {"namespace": "tools", "name": "tenon-manager"}, "spec": {"holderIdentity": "m", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T11:59:58.000000Z"}}, `, 1)
	none := with(installed, pathLeases, lease, record, refusal(404, "NotFound", "no such ConfigMap"))
	if out, err := kubectl(t, none, "rollout"); err != nil || out != rollouts.Text(rollout.State{}, time.Time{}) {
		t.Errorf("no rollout is printed as %q, %v", out, err)
	}
	if out, err := kubectl(t, none, "rollout", "-o", "json"); err != nil || out != "{}\n" {
		t.Errorf("as data, no rollout is %q, %v", out, err)
	}
	some := with(installed, pathLeases, lease, record, objectOf(data))
	if out, err := kubectl(t, some, "rollout"); err != nil || out != rollouts.Text(s, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)) {
		t.Errorf("%q, %v", out, err)
	}
	// Another user has a Lease of the same name in a namespace that comes first.
	elsewhere := strings.Replace(lease, `"items": [`, `"items": [{"metadata": {"namespace": "a-user", "name": "tenon-manager"}, "spec": {"holderIdentity": "u", "leaseDurationSeconds": 15, "renewTime": "2026-03-01T11:59:58.000000Z"}}, `, 1)
	const hooks = `{"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "tenon-manager"},
		"webhooks": [{"name": "w", "clientConfig": {"service": {"namespace": "tools", "name": "tenon-manager"}}}]}`
	if out, err := kubectl(t, with(some, pathLeases, elsewhere, pathHooks, hooks), "rollout"); err != nil || !strings.HasPrefix(out, "Batch work comes to") {
		t.Errorf("with a Lease of a user: %q, %v", out, err)
	}
	var read rollout.State
	out, err := kubectl(t, with(installed, record, objectOf(data)), "rollout", "-n", "tools", "-o", "json")
	if err != nil || json.Unmarshal([]byte(out), &read) != nil || read.Check() != nil || read.Config.Margin != 10 {
		t.Errorf("%s, %v", out, err)
	}
	if _, err := kubectl(t, with(some, record, objectOf(map[string]string{"state.json": `{"phase":"done"}`})), "rollout"); err == nil {
		t.Error("a damaged state is printed")
	}
	if _, err := kubectl(t, with(some, record, refusal(403, "Forbidden", "not you")), "rollout"); err == nil {
		t.Error("what may not be read counts as none")
	}
}
