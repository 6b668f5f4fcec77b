package admission

import (
	"os"
	"regexp"
	"strings"
	"testing"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/config"
)

// TestAnObjectiveIsRefusedWithFieldAndRange writes objectives into new pods,
// running pods, profiles and the ConfigMap.
func TestAnObjectiveIsRefusedWithFieldAndRange(t *testing.T) {
	const ls = "koordinator.sh/qosClass: LS"
	at := "annotations[tenon.sh/objective]"
	for name, tc := range map[string]struct{ labels, value, want string }{
		"2 ms":            {ls, `{"runQueueDelay": "2ms"}`, ""},
		"none":            {ls, `{}`, ""},
		"without a class": {"a: b", `{"runQueueDelay": "2ms"}`, ""},
		"too short":       {ls, `{"runQueueDelay": "5us"}`, at + ".runQueueDelay: 5µs: want a duration from 10µs to 1s"},
		"too long":        {ls, `{"runQueueDelay": "1h"}`, at + ".runQueueDelay: 1h0m0s: want a duration from 10µs to 1s"},
		"no unit":         {ls, `{"runQueueDelay": 2}`, at + ".runQueueDelay: 2: want a duration from 10µs to 1s, such as 1s or 500ms"},
		"an unknown key":  {ls, `{"every": "2ms"}`, at + ".every: unknown key: want runQueueDelay, p50, "},
		"of requests":     {ls, `{"p99": "2ms", "source": "metrics", "port": 8080}`, ""},
		"without a port":  {ls, `{"p99": "2ms", "source": "metrics"}`, at + ".port: missing: want a whole number from 1 to 65535"},
		"by the wire":     {ls, `{"p99": "2ms", "source": "wire", "port": 8080}`, at + `.source: "wire": want one of metrics, socket, query`},
		"by the socket":   {ls, `{"p99": "2ms", "source": "socket", "port": 8080}`, ""},
		"by Prometheus":   {ls, `{"p99": "2ms", "source": "query"}`, ""},
		"of all pods":     {ls, `{"p99": "2ms", "source": "query", "labels": {"namespace": "bank"}}`, at + `.labels[namespace]: "namespace": want another label, because Tenon sets namespace and pod to those of the pod`},
		"a batch pod's":   {be, `{"p99": "2ms", "source": "metrics", "port": 8080}`, at + ".p99: 2ms: want it for LSE, LSR or LS only: class BE has no latency objective"},
		"a misspelt key":  {ls, `{"runQueueDealy": "2ms"}`, at + ".runQueueDealy: unknown key: did you mean runQueueDelay?"},
		"not JSON":        {ls, `p99 <= 5ms`, at + ": not JSON: "},
		"best-effort":     {be, `{"runQueueDelay": "2ms"}`, at + ".runQueueDelay: 2ms: want it for LSE, LSR or LS only: class BE has no latency objective"},
		"of the system":   {"koordinator.sh/qosClass: SYSTEM", `{"runQueueDelay": "2ms"}`, at + ".runQueueDelay: 2ms: want it for LSE, LSR or LS only: class SYSTEM has no latency objective"},
	} {
		t.Run(name, func(t *testing.T) {
			has := func(where string, v Verdict, want string) {
				t.Helper()
				if v.Allowed() != (want == "") || !strings.Contains(v.Message(), want) {
					t.Errorf("%s: %q, want %q", where, v.Message(), want)
				}
			}
			note := "tenon.sh/objective: '" + tc.value + "'"
			want := tc.want
			if want != "" {
				want = "metadata." + want
			}
			if tc.labels != be { // a BE pod is bounded first
				has("a new pod", ValidateCreate(pod(t, tc.labels, note, own), tenant.Namespace{}, false, Ranges{}), want)
			}
			has("a running pod", ValidateUpdate(pod(t, tc.labels, "", own), pod(t, tc.labels, note, own), tenant.Namespace{}), want)
			has("a change of another value", ValidateUpdate(pod(t, tc.labels, note, own), pod(t, tc.labels, note+", a: b", own), tenant.Namespace{}), "")
			profile := profiled("a", func(s *configv1alpha1.ClusterColocationProfileSpec) {
				_, s.QoSClass, _ = strings.Cut(tc.labels, "qosClass: ")
				s.Annotations = map[string]string{kube.AnnotationObjective: tc.value}
			})
			if want != "" {
				want = "spec." + tc.want
			}
			has("a profile", ValidateProfile(&profile, nil), want)
		})
	}
	v := ValidateConfigMap(map[string]string{"objective-config": `{"objectives": [{"namespaces": ["shop"], "objective": {"runQueueDelay": "2h"}}]}`})
	if want := "objective-config.objectives[0].objective.runQueueDelay: 2h0m0s: want a duration from 10µs to 1s"; v.Message() != want {
		t.Errorf("the ConfigMap: %q, want %q", v.Message(), want)
	}
	if v := ValidateConfigMap(map[string]string{"objective-config": `{"objectives": [{"namespaces": ["shop"], "objective": {"runQueueDelay": "2ms"}}]}`}); !v.Allowed() || len(v.Warnings) > 0 {
		t.Errorf("a good ConfigMap: %+v", v)
	}
}

// TestAProfileStatesAnObjectiveForRequests checks that a profile gives a pod an
// objective for its requests.
func TestAProfileStatesAnObjectiveForRequests(t *testing.T) {
	p, v := admit(Request{Pod: pod(t, "app: web", "", own), Profiles: []configv1alpha1.ClusterColocationProfile{
		profiled("a", func(s *configv1alpha1.ClusterColocationProfileSpec) {
			s.QoSClass, s.Annotations = "LS", map[string]string{kube.AnnotationObjective: `{"p99": "5ms", "source": "metrics", "port": 8080}`}
		}),
	}})
	if o, said, _ := kube.ObjectiveOf(p, kube.Class(p)); !v.Allowed() || !said || !o.Requests.Stated() || o.Requests.Port != 8080 {
		t.Errorf("%s: %v", v.Message(), p.Annotations)
	}
}

// TestAProfileStatesAnObjective checks that the annotation of a profile reaches
// the pod.
func TestAProfileStatesAnObjective(t *testing.T) {
	p, v := admit(Request{Pod: pod(t, "app: web", "", own), Profiles: []configv1alpha1.ClusterColocationProfile{
		profiled("a", func(s *configv1alpha1.ClusterColocationProfileSpec) {
			s.QoSClass, s.Annotations = "LS", map[string]string{kube.AnnotationObjective: `{"runQueueDelay": "2ms"}`}
		}),
	}})
	if o, said, _ := kube.ObjectiveOf(p, kube.Class(p)); !v.Allowed() || !said || !o.RunQueueDelay.Known() {
		t.Errorf("%s: %v", v.Message(), p.Annotations)
	}
}

// TestEveryLineOfThePageAboutObjectivesIsAccepted writes the lines of
// docs/objectives.md where the page says that they stand.
func TestEveryLineOfThePageAboutObjectivesIsAccepted(t *testing.T) {
	document, err := os.ReadFile("../../../docs/objectives.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, m := range regexp.MustCompile("`((?:tenon.sh/objective|objective-config|objective): .*?)` \\|").FindAllStringSubmatch(string(document), -1) {
		line := m[1]
		key, value, _ := strings.Cut(line, ": ")
		seen[key]++
		v := Verdict{}
		switch key {
		case kube.AnnotationObjective:
			v = ValidateCreate(pod(t, "koordinator.sh/qosClass: LS", line, own), tenant.Namespace{}, false, Ranges{})
		case "objective-config":
			v = ValidateConfigMap(map[string]string{key: strings.Trim(value, "'")})
		default:
			_, faults := config.Parse([]byte("apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\nrules:\n- {name: web, class: LS, units: [web.service], " + line + "}\n"))
			if len(faults) > 0 {
				t.Errorf("%s: %v", line, faults)
			}
		}
		if !v.Allowed() || len(v.Warnings) > 0 {
			t.Errorf("%s: refusals %q, warnings %q", line, v.Message(), v.Warnings)
		}
	}
	if seen[kube.AnnotationObjective] != 2 || seen["objective-config"] != 1 || seen["objective"] != 1 {
		t.Errorf("the page has %v", seen)
	}
}
