package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/cmdline"
)

// TestUsageErrorsSayWhatIsKnown checks command lines with an error. Their status
// is 2.
func TestUsageErrorsSayWhatIsKnown(t *testing.T) {
	for line, want := range map[string]string{
		"explain foo":                 `unknown command "foo": want isolation, node, pod`,
		"explain workload x":          `unknown command "workload": want isolation, node, pod`,
		"explan pod":                  `unknown command "explan": did you mean explain?`,
		"nothing":                     `unknown command "nothing": want doctor, explain, fit, map, objectives, report, rollout, top, translate, version`,
		"help explain nde":            `unknown command "nde": did you mean node?`,
		"explain pod":                 "kubectl tenon explain pod wants one pod, got 0: see kubectl tenon explain pod --help",
		"explain pod a b":             "kubectl tenon explain pod wants one pod, got 2: see kubectl tenon explain pod --help",
		"explain pod/":                `"pod/" is not the name of a pod: want NAME, pod/NAME or NAMESPACE/NAME`,
		"explain pod a/b/c":           `"a/b/c" is not the name of a pod`,
		"explain pod shop/a -n b":     `"shop/a" names namespace shop, and the flag -n names b`,
		"explain job/x":               `kubectl tenon explain: job/x is no pod: want one of its pods, which kubectl get pods lists`,
		"explain deployment.apps/own": `kubectl tenon explain: deployment.apps/own is no pod: want one of its pods`,
		"explain pod deploy/own":      `kubectl tenon explain pod: deploy/own is no pod: want one of its pods`,
		"explain crate/x":             `unknown command "crate/x": want isolation, node, pod`,
		"explain isolation x":         `kubectl tenon explain isolation takes no argument, got "x": see kubectl tenon explain isolation --help`,
		"top x":                       `kubectl tenon top takes no argument, got "x"`,
		"top -n shop":                 "unknown flag: -n: kubectl tenon top is about nodes and the pods of all namespaces",
		"map node-1 --namespace a":    "unknown flag: --namespace: kubectl tenon map is about nodes",
		"doctor -o xml":               `invalid argument "xml" for "-o, --output" flag: want text, json or yaml`,
		"version now":                 `kubectl tenon version takes no argument, got "now"`,
		"doctor -f x":                 "unknown flag: -f: kubectl tenon fit and kubectl tenon translate have it",
		"top -A":                      "unknown flag: -A: kubectl tenon top is about nodes and the pods of all namespaces",
		"doctor --all-namespaces":     "unknown flag: --all-namespaces: kubectl tenon doctor is about nodes",
		"explain pod db -A":           "unknown flag: -A: see kubectl tenon explain pod --help",
		"top --kubeconfg x":           "unknown flag: --kubeconfg: did you mean --kubeconfig?",
		"completion zsh -o json":      "unknown flag: -o: see kubectl tenon completion zsh --help",
		"top -x":                      "unknown flag: -x: see kubectl tenon top --help",
		"fit":                         "kubectl tenon fit wants a manifest, such as -f db.yaml: see kubectl tenon fit --help",
		"map node-1 --svg - --html -": "--svg and --html name the same file",
		"map node-1 -o json --svg x":  "want one of -o json, --svg and --html",
	} {
		_, err := kubectl(t, installed, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want) || cmdline.ExitStatus(err) != cmdline.ExitUsage {
			t.Errorf("%s: %v, want %s and status 2", line, err, want)
		}
	}
	for _, line := range []string{"explain pod web", "fit -f /nowhere.yaml", "explain node node-2"} {
		if _, err := kubectl(t, installed, strings.Fields(line)...); err == nil || cmdline.ExitStatus(err) != cmdline.ExitFailure {
			t.Errorf("%s: %v, want status 1", line, err)
		}
	}
	for line, want := range map[string][]string{
		"":           {"\nLook:\n  map ", "\nExplain:\n  doctor ", "\nTry:\n  fit ", "\nCluster and user:\n", "\nHelp:\n"},
		"explain":    {"\nAvailable Commands:\n", "\n  node ", "\nCluster and user:\n"},
		"top --help": {"\nFlags:\n  -h, --help ", "\n  -o, --output FORMAT ", "\nCluster and user:\n"},
	} {
		out, err := kubectl(t, installed, strings.Fields(line)...)
		for _, part := range want {
			if err != nil || !strings.Contains(out, part) {
				t.Errorf("%q: %v, want %q in\n%s", line, err, part, out)
			}
		}
	}
}

// TestWhatUsersOfKubectlTypeWorks checks the forms of kubectl.
func TestWhatUsersOfKubectlTypeWorks(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"explain pod/db":                      "default/db asks for 4 CPUs of its own",
		"explain pods/db -n shop":             "shop/db asks for 14 CPUs",
		"explain pod pod/db -n shop":          "shop/db asks for 14 CPUs",
		"explain pod shop/db -n shop":         "shop/db asks for 14 CPUs",
		"explain pod/db -o json":              `"pod": "default/db"`,
		"explain node/node-1":                 "\nCPUs for pods: 12 of 16 CPUs open (1 must stay open); 4 owned by 1 pod\n",
		"explain node no/node-1":              "kubectl tenon map node-1\n",
		"map node/node-1":                     "A  exclusive  default/db  4 CPUs: 0-3",
		"fit -f " + file + " -n shop":         "shop/p ",
		"fit -f " + file + " -f " + file:      "2 of 2 pods",
		"fit " + file + " --filename " + file: "2 of 2 pods",
	} {
		if out, err := kubectl(t, clusterFor(line), strings.Fields(line)...); err != nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v\n%s\nwant %q", line, err, out, want)
		}
	}
	if err := os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: p, namespace: a}\nspec: {containers: [{name: c}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := kubectl(t, withRoom, "fit", "-f", file, "-n", "b"); err == nil || !strings.Contains(err.Error(), "p is in namespace a, and the flag -n says b") {
		t.Error(err)
	}
}

// clusterFor returns the cluster for a command: fit needs one with room.
func clusterFor(line string) map[string]string {
	if strings.HasPrefix(line, "fit") {
		return withRoom
	}
	return installed
}

// TestAnswersAreJSON decodes what -o json prints.
func TestAnswersAreJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: p, annotations: {cpuset-scheduler: 'true'}}\nspec: {containers: [{name: c, resources: {limits: {cpu: '4'}}}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"explain pod db -o json":      "state=holds",
		"explain pod shop/db -o json": "state=waits",
		"map node-1 -o json":          "node=node-1",
		"fit -f " + file + " -o json": "fits=1",
	} {
		out, err := kubectl(t, clusterFor(line), strings.Fields(line)...)
		var got map[string]any
		if err != nil || json.Unmarshal([]byte(out), &got) != nil {
			t.Errorf("%s: %v\n%s", line, err, out)
			continue
		}
		field, value, _ := strings.Cut(want, "=")
		if text, _ := json.Marshal(got[field]); strings.Trim(string(text), `"`) != value {
			t.Errorf("%s: %s is %s, want %s", line, field, text, value)
		}
	}
}

// TestCompletionKnowsNodesAndFormats asks as a shell does.
func TestCompletionKnowsNodesAndFormats(t *testing.T) {
	t.Setenv("KUBECONFIG", serve(t, with(installed, pathNamespaces, `{"kind": "NamespaceList", "apiVersion": "v1", "items": [{"metadata": {"name": "default"}}]}`, "/api/v1/namespaces/default/pods", pods)))
	for line, want := range map[string]string{
		"map nod": "node-1\n", "explain node nod": "node-1\n", "fit -o j": "json\n", "explain i": "isolation",
		"explain pod d": "db\n", "explain pod -n d": "default\n", "top --context c": "c\n", "top --user u": "u\n", "top --cluster c": "c\n",
		"fit -f x": ":0\n", "top --kubeconfig x": ":0\n", "top --token x": ":4\n", "report --node nod": "node-1\n", "explain pod db d": ":4\n",
	} {
		var out strings.Builder
		root := newRootCommand(time.Now)
		root.SetOut(&out)
		root.SetErr(&out)
		root.SetArgs(append([]string{"__complete"}, strings.Fields(line)...))
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), want) {
			t.Errorf("%s: %v\n%s", line, err, out.String())
		}
	}
}

// TestEveryAnswerIsPrintedAsData checks that each command prints an object, as
// JSON and as YAML, with the facts that its text has.
func TestEveryAnswerIsPrintedAsData(t *testing.T) {
	for line, want := range map[string][]string{
		"top":               {"nodes", "node-1"},
		"doctor":            {"healthy", "node-1"},
		"explain node":      {"report", "node-1"},
		"explain isolation": {"nodes", "node-1"},
		"objectives":        {"services", "services"},
		"map":               {"online", "node-1"},
	} {
		args := strings.Fields(line)
		if line == "explain node" || line == "map" {
			args = append(args, "node-1")
		}
		text, err := kubectl(t, installed, append(args, "-o", "json")...)
		_, text, _ = strings.Cut("\n"+text, "\n{") // notices of what is not known come first
		text = "{" + text
		var page map[string]any
		if wrong := json.Unmarshal([]byte(text), &page); wrong != nil || page[want[0]] == nil || !strings.Contains(text, want[1]) {
			t.Errorf("%s -o json: %v, %v, want %q in\n%s", line, err, wrong, want, text)
		}
		text, err = kubectl(t, installed, append(args, "-o", "yaml")...)
		if strings.HasPrefix(text, "{") || !strings.Contains("\n"+text, "\n"+want[0]+":") {
			t.Errorf("%s -o yaml: %v, want %q in\n%s", line, err, want, text)
		}
	}
}
