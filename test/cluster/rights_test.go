package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// auditPolicy makes the API server log the requests of Tenon's service
// accounts.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  users:
  - system:serviceaccount:tenon-system:tenond
  - system:serviceaccount:tenon-system:tenon-manager
  - system:serviceaccount:tenon-system:tenon-uninstall
  - system:serviceaccount:tenon-system:tenon-check
- level: None
`

// A right is a permission of an account: one that a role grants or that a
// request used. Examples of resource are pods and pods/eviction.
type right struct{ account, verb, group, resource string }

// rareRights lists rights with the cases that need them. These cases do not
// occur when Tenon is installed, used and uninstalled in the ordinary way.
var rareRights = map[right]string{
	{"tenond", "get", "", "nodes/pods"}:                    "the kubelet asks whether tenond may ask it",
	{"tenond", "get", "", "nodes/configz"}:                 "the kubelet asks whether tenond may ask it",
	{"tenond", "list", "", "pods"}:                         "TestTheAPIServerStandsInForAKubeletThatRefuses",
	{"tenond", "watch", "", "pods"}:                        "TestTheAPIServerStandsInForAKubeletThatRefuses",
	{"tenond", "create", "", "pods/eviction"}:              "TestTenondEvictsByTheAPI",
	{"tenond", "create", "", "events"}:                     "TestTenondEvictsByTheAPI",
	{"tenond", "create", "tenon.sh", "nodereports"}:        "the first report, which is a patch",
	{"tenond", "get", "tenon.sh", "nodereports"}:           "TestRequestLatencyMakesBatchWorkGiveWay",
	{"tenond", "get", "", "namespaces"}:                    "TestTenondLeavesOnlyWhereItIsTakenAway",
	{"tenon-manager", "get", "", "namespaces"}:             "a pod in a namespace that its cache does not have yet",
	{"tenon-manager", "create", "events.k8s.io", "events"}: "TestADegradationCausesAnEventAtItsBeginAndEnd",
	{"tenon-manager", "patch", "", "events"}:               "the same event again",
	{"tenon-manager", "patch", "events.k8s.io", "events"}:  "the same event again",
	{"tenon-manager", "watch", "", "pods"}:                 "TestAGateOpensWhenThereIsRoom",
	{"tenon-manager", "patch", "", "pods"}:                 "TestAGateOpensWhenThereIsRoom",
	{"tenon-manager", "create", "", "configmaps"}:          "TestTheChartsRightsAreEnough", // a rollout
	{"tenon-manager", "get", "", "configmaps"}:             "TestTheChartsRightsAreEnough",
	{"tenon-manager", "update", "", "configmaps"}:          "TestTheChartsRightsAreEnough",
	{"tenon-manager", "update", "", "secrets"}:             "TestCertificatesChangeUnderLoad",
	{"tenon-uninstall", "get", "", "nodes"}:                "agents on nodes that are lost",
	{"tenon-uninstall", "patch", "", "pods"}:               "pods with a gate",
	{"tenon-uninstall", "patch", "", "nodes/status"}:       "where the manager is not the first to take the batch resources off",
	{"tenon-uninstall", "list", "", "pods"}:                "agents on nodes that are lost",

	// A search for missed pods reads pods only if the cluster has profiles.
	{"tenon-manager", "get", "", "pods"}:                                                    "TestPodsThatAProfileMissedAreReported",
	{"tenon-manager", "list", "", "pods"}:                                                   "TestPodsThatAProfileMissedAreReported",
	{"tenon-manager", "patch", "config.koordinator.sh", "clustercolocationprofiles/status"}: "TestPodsThatAProfileMissedAreReported",
}

// auditing returns the arguments with which the API server writes an audit log,
// and the path of this log.
func auditing(t *testing.T) (args []string, log string) {
	t.Helper()
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o644); err != nil {
		t.Fatal(err)
	}
	return []string{"--audit-policy-file=" + policy, "--audit-log-path=" + log}, log
}

// granted returns the rights that the installed chart grants.
func (h *chart) granted() map[right]bool {
	h.t.Helper()
	type role struct{ kind, name string }
	rules, bound := map[role][]rbacv1.PolicyRule{}, map[role][]string{}
	text := h.run("get", "manifest", release, "--namespace", home) + "\n---\n" + h.run("get", "hooks", release, "--namespace", home)
	for d := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096); ; {
		var o struct {
			Kind     string
			Metadata struct{ Name string }
			Rules    json.RawMessage // webhooks have rules, too
			RoleRef  struct{ Kind, Name string }
			Subjects []struct{ Name string }
		}
		err := d.Decode(&o)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			h.t.Fatal(err)
		}
		switch o.Kind {
		case "Role", "ClusterRole":
			var list []rbacv1.PolicyRule
			if err := json.Unmarshal(o.Rules, &list); err != nil {
				h.t.Fatal(err)
			}
			rules[role{o.Kind, o.Metadata.Name}] = list
		case "RoleBinding", "ClusterRoleBinding":
			for _, s := range o.Subjects {
				of := role{o.RoleRef.Kind, o.RoleRef.Name}
				bound[of] = append(bound[of], s.Name)
			}
		}
	}
	all := map[right]bool{}
	for of, list := range rules {
		for _, account := range bound[of] {
			for _, rule := range list {
				for _, group := range rule.APIGroups {
					for _, resource := range rule.Resources {
						for _, verb := range rule.Verbs {
							all[right{account, verb, group, resource}] = true
						}
					}
				}
			}
		}
	}
	return all
}

// usedRights returns the rights that were needed by the requests in the audit
// log.
func usedRights(t *testing.T, log string) map[right]bool {
	t.Helper()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	all := map[right]bool{}
	for line := range strings.Lines(string(text)) {
		var e struct {
			Verb      string
			User      struct{ Username string }
			ObjectRef *struct{ APIGroup, Resource, Subresource string }
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil || e.ObjectRef == nil {
			continue // an incomplete line, or a path without a resource
		}
		resource := e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			resource += "/" + e.ObjectRef.Subresource
		}
		all[right{e.User.Username[strings.LastIndex(e.User.Username, ":")+1:], e.Verb, e.ObjectRef.APIGroup, resource}] = true
	}
	return all
}

// grantsNoMore requires that each granted right was used or is in rareRights.
func (h *chart) grantsNoMore(granted map[right]bool, log string) {
	h.t.Helper()
	needed := usedRights(h.t, log)
	if len(needed) < 10 { // too few for an installation
		h.t.Fatalf("the API server noted no more than %v", needed)
	}
	var idle []string
	for r := range granted {
		// A client that watches objects lists them first if the server does not
		// stream them.
		streamed := r.verb == "list" && needed[right{r.account, "watch", r.group, r.resource}]
		if !needed[r] && !streamed && rareRights[r] == "" {
			idle = append(idle, fmt.Sprintf("%s: %s %s %s", r.account, r.verb, r.group, r.resource))
		}
	}
	slices.Sort(idle)
	if len(idle) > 0 {
		h.t.Errorf("the chart grants what nobody needs:\n%s", strings.Join(idle, "\n"))
	}
	for r := range rareRights {
		if !granted[r] {
			h.t.Errorf("not granted, and said to be needed: %v", r)
		}
	}
}
