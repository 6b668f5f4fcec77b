package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const pathProfiles = "/apis/config.koordinator.sh/v1alpha1/clustercolocationprofiles"

// TestTranslatePrintsTheManifests runs translate on files, on folders and on the
// profiles of the API server.
func TestTranslatePrintsTheManifests(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	const service = "kind:   Service\nmetadata: {name: web}"
	pod := func(labels string) string {
		return "kind: Pod\nmetadata:\n  name: job # mine\n  labels: {" + labels + "}\nspec:\n  containers:\n    - name: job\n      resources:\n        limits: {cpu: 2, memory: 1Gi}\n"
	}
	write("all/a.yaml", service)
	job := write("all/b.yml", pod("koordinator.sh/qosClass: BE"))
	spark := write("all/below/c.yaml", pod("app: spark"))
	write("all/notes.txt", "[")
	profile := write("profile.yaml", "kind: ClusterColocationProfile\nmetadata: {name: spark}\nspec: {selector: {matchLabels: {app: spark}}, qosClass: BE, priorityClassName: koord-batch}\n")
	all := filepath.Join(dir, "all")
	const two = "        limits: {kubernetes.io/batch-cpu: 2k, kubernetes.io/batch-memory: 1Gi}\n"
	installed := with(installed, "/api/v1/namespaces", `{"kind": "NamespaceList", "apiVersion": "v1", "items": []}`)
	profiles := with(installed, pathProfiles, `{"kind": "ClusterColocationProfileList", "apiVersion": "config.koordinator.sh/v1alpha1", "items": [
		{"metadata": {"name": "spark"}, "spec": {"qosClass": "BE", "selector": {"matchLabels": {"app": "spark"}}}}]}`)
	leftAlone := with(installed, "/api/v1/namespaces", `{"kind": "NamespaceList", "apiVersion": "v1", "items": [{"metadata": {"name": "default", "labels": {"tenon.sh/ignore": "true"}}}]}`)
	for name, x := range map[string]struct {
		paths      map[string]string
		args       []string
		translated int
	}{
		"a namespace left alone":      {leftAlone, []string{"-f", job}, 0},
		"a file":                      {installed, []string{"-f", job}, 1},
		"without -f":                  {installed, []string{job}, 1},
		"a folder":                    {installed, []string{"-f", all}, 1},
		"folders":                     {installed, []string{"-f", all, "-R"}, 1},
		"a profile of the cluster":    {profiles, []string{"-f", all, "-R"}, 2},
		"a profile of a file":         {installed, []string{"-f", all, "-R", "--profile", profile}, 2},
		"no profile of the cluster":   {profiles, []string{"-f", all, "-R", "--local"}, 1},
		"a cluster that is not asked": {map[string]string{pathProfiles: refusal(403, "Forbidden", "no")}, []string{"-f", spark, "--profile", profile}, 1},
	} {
		out, err := kubectl(t, x.paths, append([]string{"translate"}, x.args...)...)
		if err != nil || strings.Count(out, two) != x.translated {
			t.Errorf("%s: %v, want %d translated\n%s", name, err, x.translated, out)
		}
		if strings.Contains(name, "folder") && !strings.HasPrefix(out, service+"\n---\nkind: Pod\nmetadata:\n  name: job # mine\n") {
			t.Errorf("%s: the documents are not joined:\n%s", name, out)
		}
	}
	bad := write("bad.yaml", service+"\n---\n"+strings.Replace(pod("koordinator.sh/qosClass: BE"), "cpu: 2", "cpu: 2, kubernetes.io/batch-cpu: 1k", 1))
	empty := filepath.Dir(write("empty/notes.txt", ""))
	for want, x := range map[string]struct {
		paths map[string]string
		args  []string
	}{
		bad + ": document 2: Pod job: spec.containers[job].resources.limits[cpu]: this container also": {installed, []string{"-f", bad}},
		"wants a manifest, such as -f job.yaml":                                                        {installed, nil},
		"no file ends with .json, .yaml or .yml":                                                       {installed, []string{"-f", empty}},
		"/nowhere.yaml: no such file":                                                                  {installed, []string{"-f", "/nowhere.yaml"}},
		"or leave profiles out with --local":                                                           {with(installed, pathProfiles, refusal(403, "Forbidden", "no")), []string{"-f", job}},
		job + `: document 1: kind: "Pod": want ClusterColocation`:                                      {installed, []string{"-f", job, "--profile", job}},
	} {
		if out, err := kubectl(t, x.paths, append([]string{"translate"}, x.args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s\n%s", x.args, err, want, out)
		}
	}
}

// TestTranslateAsksForTheHomeOfTenon translates a pod of Tenon itself, which has all
// rights in the namespace to which the API server sends its questions.
func TestTranslateAsksForTheHomeOfTenon(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: a, namespace: tenon-system, labels: {koordinator.sh/qosClass: SYSTEM}}\nspec: {containers: [{name: a}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	hooks := func(namespace string) map[string]string {
		return with(installed, "/api/v1/namespaces", `{"kind": "NamespaceList", "apiVersion": "v1", "items": [{"metadata": {"name": "tenon-system"}}]}`,
			"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations/tenon-manager",
			`{"kind": "ValidatingWebhookConfiguration", "apiVersion": "admissionregistration.k8s.io/v1", "webhooks": [{"name": "a", "clientConfig": {"service": {"name": "tenon-manager", "namespace": "`+namespace+`"}}}]}`)
	}
	if out, err := kubectl(t, hooks("tenon-system"), "translate", "-f", file); err != nil || strings.Contains(out, "warning") {
		t.Errorf("%v\n%s", err, out)
	}
	want := file + `: document 1: Pod tenon-system/a: metadata.labels[koordinator.sh/qosClass]: namespace "tenon-system" may not have class SYSTEM`
	if _, err := kubectl(t, hooks("shop"), "translate", "-f", file); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// TestWithoutAKubeconfigTheErrorSaysHowToNameOne runs commands where there is none.
func TestWithoutAKubeconfigTheErrorSaysHowToNameOne(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, args := range [][]string{{"top"}, {"doctor"}, {"explain", "pod", "web"}, {"explain", "node", "node-1"}} {
		root := newRootCommand(nil)
		root.SetOut(io.Discard)
		root.SetErr(io.Discard)
		root.SetArgs(args)
		err := root.Execute()
		if !errors.Is(err, errNoKubeconfig) || strings.Contains(err.Error(), "KUBERNETES_MASTER") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// TestTranslateNeedsNoCluster runs translate where there is no kubeconfig.
func TestTranslateNeedsNoCluster(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod\nmetadata: {labels: {koordinator.sh/qosClass: BE}}\nspec: {containers: [{name: a, resources: {limits: {cpu: 1}}}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, args := range [][]string{nil, {"-n", "shop"}} {
		var out, errOut strings.Builder
		root := newRootCommand(nil)
		root.SetOut(&out)
		root.SetErr(&errOut)
		root.SetArgs(append([]string{"translate", "-f", file}, args...))
		if err := root.Execute(); err != nil || !strings.Contains(out.String(), "kubernetes.io/batch-cpu: 1k") {
			t.Errorf("%v: %v\n%s", args, err, out.String())
		}
		for _, want := range []string{"there is no kubeconfig, so no profile acts", "warning: " + file + ": document 1: Pod: spec.containers[a].resources.limits[kubernetes.io/batch-memory]: missing"} {
			if !strings.Contains(errOut.String(), want) {
				t.Errorf("%v: want %q in\n%s", args, want, errOut.String())
			}
		}
	}
}
