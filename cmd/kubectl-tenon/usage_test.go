package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestUsageErrorsSayWhatIsKnown checks command lines with an error. Their status
// is 2.
func TestUsageErrorsSayWhatIsKnown(t *testing.T) {
	for line, want := range map[string]string{
		"explain foo":                 `kubectl tenon explain: there is no "foo": want isolation, node, pod`,
		"explain workload x":          `kubectl tenon explain: there is no "workload": want isolation, node, pod`,
		"explan pod":                  `kubectl tenon: there is no "explan": want doctor, explain, fit, map, objectives, top, version`,
		"explain pod":                 "kubectl tenon explain pod: want the name of a pod: see kubectl tenon explain pod --help",
		"explain pod a b":             "kubectl tenon explain pod: want one pod, and there are 2: a b",
		"explain pod/":                `"pod/" is not the name of a pod: want NAME, pod/NAME or NAMESPACE/NAME`,
		"explain pod a/b/c":           `"a/b/c" is not the name of a pod`,
		"explain pod shop/a -n b":     `"shop/a" names namespace shop, and the flag -n names b`,
		"explain job/x":               `kubectl tenon explain: job/x is no pod: want one of its pods, which kubectl get pods lists`,
		"explain deployment.apps/own": `kubectl tenon explain: deployment.apps/own is no pod: want one of its pods`,
		"explain pod deploy/own":      `kubectl tenon explain pod: deploy/own is no pod: want one of its pods`,
		"explain crate/x":             `kubectl tenon explain: there is no "crate/x": want isolation, node, pod`,
		"explain isolation x":         `kubectl tenon explain isolation takes no argument, and "x" is one`,
		"top x":                       `kubectl tenon top takes no argument, and "x" is one`,
		"top -n shop":                 "kubectl tenon top has no flag -n: it is about nodes and the pods of all namespaces",
		"map node-1 --namespace a":    "kubectl tenon map has no flag --namespace: it is about nodes",
		"doctor -o xml":               `invalid argument "xml" for "-o, --output" flag: want text, json or yaml`,
		"version now":                 `kubectl tenon version takes no argument, and "now" is one`,
		"doctor -f x":                 "kubectl tenon doctor has no flag -f: fit reads manifests",
		"top -x":                      "kubectl tenon top has no flag -x: see kubectl tenon top --help",
		"fit":                         "kubectl tenon fit: want a manifest, such as -f db.yaml",
		"map node-1 --svg - --html -": "--svg and --html name the same file",
		"map node-1 -o json --svg x":  "want one of -o json, --svg and --html",
	} {
		_, err := kubectl(t, installed, strings.Fields(line)...)
		if err == nil || !strings.Contains(err.Error(), want) || exitStatus(err) != exitUsage {
			t.Errorf("%s: %v, want %s and status 2", line, err, want)
		}
	}
	for _, line := range []string{"explain pod web", "fit -f /nowhere.yaml", "explain node node-2"} {
		if _, err := kubectl(t, installed, strings.Fields(line)...); err == nil || exitStatus(err) != exitFailure {
			t.Errorf("%s: %v, want status 1", line, err)
		}
	}
	for _, line := range []string{"", "explain"} {
		if out, err := kubectl(t, installed, strings.Fields(line)...); err != nil || !strings.Contains(out, "Available Commands") {
			t.Errorf("%q: %v\n%s", line, err, out)
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
		"top -A":                              "node-1  12 of 16  OOOO",
		"doctor --all-namespaces":             "cpus         tenond binds CPUs: node-1",
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
	t.Setenv("KUBECONFIG", serve(t, installed))
	for line, want := range map[string]string{"map nod": "node-1\n", "explain node nod": "node-1\n", "fit -o j": "json\n", "explain i": "isolation"} {
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
