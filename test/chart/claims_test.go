package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

func TestNoContainerIsPrivilegedAndEachDropsWhatItDoesNotNeed(t *testing.T) {
	for key, d := range mustRender(t, allOptions()) {
		for _, c := range containers(d) {
			name := key + "/" + c.str("name")
			if c.value("securityContext", "privileged") != nil {
				t.Errorf("%s is privileged", name)
			}
			drop, _ := c.value("securityContext", "capabilities", "drop").([]any)
			if !slices.Contains(drop, any("ALL")) || c.value("securityContext", "allowPrivilegeEscalation") != false || c.value("securityContext", "readOnlyRootFilesystem") != true {
				t.Errorf("%s: %v", name, c.value("securityContext"))
			}
			if d.str("metadata", "name") != "tenond" {
				if add := c.value("securityContext", "capabilities", "add"); add != nil {
					t.Errorf("%s adds %v", name, add)
				}
				if d.value(append(podSpec(d), "securityContext", "runAsNonRoot")...) != true {
					t.Errorf("%s may be root", name)
				}
			}
			for _, bound := range [][]string{{"requests", "cpu"}, {"requests", "memory"}, {"limits", "memory"}} {
				if c.value(append([]string{"resources"}, bound...)...) == nil {
					t.Errorf("%s has no %v", name, bound)
				}
			}
		}
	}
}

// podSpec returns the path to the specification of the pods of a document.
func podSpec(d document) []string {
	if d.str("kind") == "Pod" {
		return []string{"spec"}
	}
	return []string{"spec", "template", "spec"}
}

// containers returns the containers of a document, each as a document.
func containers(d document) (all []document) {
	list, _ := d.value(append(podSpec(d), "containers")...).([]any)
	for _, c := range list {
		m, _ := c.(map[string]any)
		all = append(all, document{object: m})
	}
	return all
}

// TestOnlyTheReadinessProbeAsksWhetherAContainerIsReady checks the probes after
// which the kubelet restarts a container. /readyz also fails for reasons that a
// restart does not remove: tenond's does as long as its journal lacks entries.
func TestOnlyTheReadinessProbeAsksWhetherAContainerIsReady(t *testing.T) {
	probes := 0
	for key, d := range mustRender(t, allOptions()) {
		for _, c := range containers(d) {
			for _, probe := range []string{"startupProbe", "livenessProbe", "readinessProbe"} {
				path := c.str(probe, "httpGet", "path")
				if path != "" {
					probes++
				}
				if path != "" && (path == "/readyz") != (probe == "readinessProbe") {
					t.Errorf("%s/%s: the %s asks %s", key, c.str("name"), probe, path)
				}
			}
		}
	}
	if probes != 7 { // two of each product, and the startup probe of tenond
		t.Errorf("the chart has %d probes", probes)
	}
}

// TestAnEndingManagerAnswersWebhooksForAMoment checks that the manager gets its
// SIGTERM only after the nodes had time to learn that it ends. Until then they
// send it webhook requests.
func TestAnEndingManagerAnswersWebhooksForAMoment(t *testing.T) {
	manager := mustRender(t, nil)["Deployment tenon-manager"]
	seconds, _ := containers(manager)[0].value("lifecycle", "preStop", "sleep", "seconds").(int)
	if seconds < 5 || seconds > 15 { // the pod has 30 s to end
		t.Errorf("the manager sleeps for %d s before it ends", seconds)
	}
}

// TestRightsAreNarrow looks for permissions that no part of Tenon needs: all
// verbs or kinds, Secrets of others, commands in pods, and permissions for
// other users.
func TestRightsAreNarrow(t *testing.T) {
	for key, d := range mustRender(t, nil) {
		rules, _ := d.value("rules").([]any)
		for _, r := range rules {
			rule := document{object: r.(map[string]any)}
			var words []string
			for _, of := range []string{"apiGroups", "resources", "verbs"} {
				list, _ := rule.value(of).([]any)
				for _, w := range list {
					words = append(words, w.(string))
				}
			}
			for _, bad := range []string{"*", "nodes/proxy", "pods/exec", "impersonate", "escalate", "bind", "deletecollection"} {
				if slices.Contains(words, bad) {
					t.Errorf("%s allows %s: %v", key, bad, r)
				}
			}
			if slices.Contains(words, "secrets") && (d.str("kind") == "ClusterRole" || rule.value("resourceNames") == nil && !slices.Equal(words, []string{"", "secrets", "create"})) {
				t.Errorf("%s allows more than its own Secret: %v", key, r)
			}
		}
	}
}

func TestAgentsReadTheKubeletWithoutTheRightToRunCommands(t *testing.T) {
	if text := mustRender(t, nil)["ClusterRole tenond"].text; strings.Contains(text, "nodes/proxy") || !strings.Contains(text, "nodes/pods") {
		t.Error(text)
	}
	if text := mustRender(t, set(true, "agent", "kubelet", "allowNodesProxy"))["ClusterRole tenond"].text; !strings.Contains(text, "nodes/proxy") {
		t.Error(text)
	}
}

// TestTheLeaseHasTheNameOfTheScheduler checks that the Lease by which the
// replicas of the scheduler elect their leader has the name that pods give, and
// that the scheduler may renew it. kubectl tenon looks for a Lease of this name.
func TestTheLeaseHasTheNameOfTheScheduler(t *testing.T) {
	for _, name := range []string{"tenon-scheduler", "batch", "7"} {
		all := mustRender(t, map[string]any{"scheduler": map[string]any{"enabled": true, "name": name}})
		var config struct {
			LeaderElection struct {
				ResourceName any `yaml:"resourceName"`
			} `yaml:"leaderElection"`
			Profiles []struct {
				SchedulerName any `yaml:"schedulerName"`
			}
		}
		if err := yaml.Unmarshal([]byte(all["ConfigMap tenon-scheduler"].str("data", "config.yaml")), &config); err != nil {
			t.Fatal(err)
		}
		if lease := config.LeaderElection.ResourceName; lease != name || config.Profiles[0].SchedulerName != name {
			t.Errorf("scheduler %s: lease %v, profile %v", name, lease, config.Profiles[0].SchedulerName)
		}
		var may []any
		rules, _ := all["Role tenon-scheduler"].value("rules").([]any)
		for _, r := range rules {
			names, _ := document{object: r.(map[string]any)}.value("resourceNames").([]any)
			may = append(may, names...)
		}
		if !slices.Equal(may, []any{name}) {
			t.Errorf("scheduler %s may renew the leases %v", name, may)
		}
	}
}

// TestTheNotesNameTheLeases checks that the notes tell how to delete each Lease
// that an uninstall leaves. No Lease is a part of the chart: the manager and the
// scheduler make them.
func TestTheNotesNameTheLeases(t *testing.T) {
	const manager = "kubectl delete secret,lease tenon-manager -n " + namespace
	for name, enabled := range map[string]bool{"tenon-scheduler": true, "batch": true, "unused": false} {
		text := notes(t, map[string]any{"scheduler": map[string]any{"enabled": enabled, "name": name}})
		if !strings.Contains(text, manager) {
			t.Errorf("the notes lack %q:\n%s", manager, text)
		}
		scheduler := "kubectl delete lease " + name + " -n " + namespace
		if strings.Contains(text, scheduler) != enabled || strings.Contains(text, name) != enabled {
			t.Errorf("scheduler enabled %t, and the notes say:\n%s", enabled, text)
		}
	}
	for key := range mustRender(t, allOptions()) {
		if strings.HasPrefix(key, "Lease ") {
			t.Errorf("%s is a part of the chart, so an uninstall deletes it", key)
		}
	}
}

// TestUninstallComesBeforeEverything checks that the uninstall job runs while
// the agents still have their permissions.
func TestUninstallComesBeforeEverything(t *testing.T) {
	all := mustRender(t, nil)
	hook := all["Job tenon-uninstall"].str("metadata", "annotations", "helm.sh/hook")
	if hook != "pre-delete" {
		t.Errorf("the job is run at %q", hook)
	}
	for key, d := range all {
		removes := strings.HasPrefix(d.str("metadata", "name"), "tenon-uninstall")
		if is := d.str("metadata", "annotations", "helm.sh/hook") == "pre-delete"; is != removes {
			t.Errorf("%s: hook %v", key, is)
		}
		// Argo CD does not run pre-delete, and runs a hook that has an annotation of its
		// own by this annotation alone.
		if is := d.str("metadata", "annotations", "argocd.argoproj.io/hook") == "PostDelete"; is != removes {
			t.Errorf("%s: hook of Argo CD %v", key, is)
		}
	}
	list, _ := containers(all["DaemonSet tenond"])[0].value("args").([]any)
	if !slices.Contains(list, any("--daemonset="+namespace+"/tenond")) {
		t.Errorf("tenond does not know its DaemonSet: %v", list)
	}
}

// TestAQuotaPermitsThePrioritiesOfAllPods checks that the ResourceQuota has the
// priority class of every pod of the chart, and no other. GKE refuses pods with
// critical priorities in namespaces without such a quota.
func TestAQuotaPermitsThePrioritiesOfAllPods(t *testing.T) {
	none := map[string]any{"priorityClassName": ""}
	for name, values := range map[string]map[string]any{
		"the default":   nil,
		"all options":   allOptions(),
		"one of them":   {"agent": none},
		"another class": {"scheduler": map[string]any{"enabled": true, "priorityClassName": "high"}},
		"no priority":   {"agent": none, "manager": none, "scheduler": map[string]any{"enabled": true, "priorityClassName": ""}},
	} {
		all, used := mustRender(t, values), map[string]bool{}
		for key, d := range all {
			class := d.value("spec", "template", "spec", "priorityClassName")
			if class == "" {
				t.Errorf("%s: %s has a priority class without a name", name, key)
			}
			if class != nil {
				used[class.(string)] = true
			}
		}
		permitted := map[string]bool{}
		terms, _ := all["ResourceQuota tenon"].value("spec", "scopeSelector", "matchExpressions").([]any)
		for _, term := range terms {
			classes, _ := document{object: term.(map[string]any)}.value("values").([]any)
			for _, class := range classes {
				permitted[class.(string)] = true
			}
		}
		if !maps.Equal(used, permitted) {
			t.Errorf("%s: the pods have the priority classes %v, and the quota has %v", name, used, permitted)
		}
		if _, is := all["ResourceQuota tenon"]; is != (len(used) > 0) {
			t.Errorf("%s: there is a quota: %t", name, is)
		}
	}
}

// TestThePriorityClassesAreThoseOfKoordinator checks the values of the priority
// classes, and that none is made where Koordinator has made them.
func TestThePriorityClassesAreThoseOfKoordinator(t *testing.T) {
	all, none := mustRender(t, nil), mustRender(t, set(false, "priorityClasses", "create"))
	for name, value := range map[string]int{"koord-prod": 9000, "koord-mid": 7000, "koord-batch": 5000, "koord-free": 3000} {
		if d := all["PriorityClass "+name]; d.value("value") != value {
			t.Errorf("%s: %v, want %d", name, d.value("value"), value)
		}
		if _, is := none["PriorityClass "+name]; is {
			t.Errorf("%s is made without priorityClasses.create", name)
		}
	}
}

// TestTheReadmeExplainsEveryValue checks that README.md is generated from the
// comments in values.yaml.
func TestTheReadmeExplainsEveryValue(t *testing.T) {
	text, err := os.ReadFile(dir + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| value | default | what it is |\n| --- | --- | --- |\n")
	explain(t, &table, "", root.Content[0])
	head, err := os.ReadFile("testdata/README.head.md")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, dir+"/README.md", string(head)+"\n"+table.String())
}

// explain writes one row of the table for each value.
func explain(t *testing.T, table *strings.Builder, prefix string, m *yaml.Node) {
	t.Helper()
	for i := 0; i < len(m.Content); i += 2 {
		key, value := m.Content[i], m.Content[i+1]
		name := prefix + key.Value
		comment := strings.ReplaceAll(strings.TrimSpace(strings.ReplaceAll(key.HeadComment, "# ", "")), "\n", " ")
		if value.Kind == yaml.MappingNode && slices.ContainsFunc(value.Content, func(n *yaml.Node) bool { return n.HeadComment != "" }) {
			explain(t, table, name+".", value)
			continue
		}
		if comment == "" {
			t.Errorf("values.yaml does not explain %s", name)
		}
		fmt.Fprintf(table, "| `%s` | %s | %s |\n", name, printDefault(t, value), comment)
	}
}

// printDefault formats a default value for one cell.
func printDefault(t *testing.T, n *yaml.Node) string {
	t.Helper()
	var v any
	if err := n.Decode(&v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	if len(text) > 80 {
		return "see values.yaml"
	}
	return "`" + string(text) + "`"
}

// TestEveryVariableInAnArgumentIsSet checks the variables $(NAME) in arguments.
// If there is no such variable, the kubelet leaves $(NAME) unchanged.
func TestEveryVariableInAnArgumentIsSet(t *testing.T) {
	for key, d := range mustRender(t, allOptions()) {
		for _, c := range containers(d) {
			known := map[string]bool{}
			env, _ := c.value("env").([]any)
			for _, e := range env {
				known[document{object: e.(map[string]any)}.str("name")] = true
			}
			args, _ := c.value("args").([]any)
			for _, a := range args {
				_, rest, used := strings.Cut(a.(string), "$(")
				if name, _, _ := strings.Cut(rest, ")"); used && !known[name] {
					t.Errorf("%s/%s: %s: there is no %s", key, c.str("name"), a, name)
				}
			}
		}
	}
}
