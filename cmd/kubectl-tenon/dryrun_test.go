package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const (
	pathPods   = "POST /api/v1/namespaces/default/pods"
	pathReview = "POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
)

func review(allowed string) string {
	return `{"kind": "SelfSubjectAccessReview", "apiVersion": "authorization.k8s.io/v1", "spec": {}, "status": {"allowed": ` + allowed + `}}`
}

// TestFitAsksTheAPIServer checks the possible answers of the API server to a
// pod that it does not store (a dry run).
func TestFitAsksTheAPIServer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	const pod = "kind: Pod\nmetadata: {name: p, labels: {koordinator.sh/qosClass: LSR}}\nspec: {containers: [{name: c, resources: {requests: {cpu: 500m}}}]}\n"
	if err := os.WriteFile(file, []byte(pod), 0o600); err != nil {
		t.Fatal(err)
	}
	const right = `pods is forbidden: User "u" cannot create resource "pods" in API group "" in the namespace "default"`
	const asked = "The API server was asked to create such pods, without storing them."
	for name, x := range map[string]struct {
		paths  map[string]string
		want   []string
		absent string
		err    error
	}{
		"it accepts the pod": {with(withRoom), []string{"1 of 1 pod would", asked}, "refuses", nil},
		"a webhook refuses it": {
			with(withRoom, pathPods, refusal(403, "Forbidden", `admission webhook "pods.validate.tenon.sh" denied the request: 500m in total`), pathReview, review("true")),
			[]string{"default/p: the API server refuses it: admission webhook \"pods.validate.tenon.sh\" denied the request: 500m in total\n", "0 of 1 pod", asked}, "Not looked at: admission", errNoRoom,
		},
		"a quota refuses it, and the right is not known": {
			with(withRoom, pathPods, refusal(403, "Forbidden", `pods "p" is forbidden: exceeded quota`)), []string{"the API server refuses it: pods \"p\" is forbidden: exceeded quota\n"}, "may not create", errNoRoom,
		},
		"the namespace does not exist": {
			with(withRoom, pathPods, refusal(404, "NotFound", `namespaces "default" not found`)), []string{`the API server refuses it: namespaces "default" not found`}, "", errNoRoom,
		},
		"the pod exists": {
			with(withRoom, pathPods, refusal(409, "AlreadyExists", `pods "p" already exists`)), []string{`the API server refuses it: pods "p" already exists (kubectl tenon explain pod default/p says where it is)`}, "", errNoRoom,
		},
		"a webhook fails": {with(withRoom, pathPods, refusal(500, "InternalError", "Internal error occurred: failed calling webhook")), []string{"the API server refuses it: Internal error"}, "", errNoRoom},
		"the user has no right": {
			with(withRoom, pathPods, refusal(403, "Forbidden", right), pathReview, review("false")),
			[]string{"1 of 1 pod would", "Not looked at: admission in namespace default, because you may not create pods there.\n"}, asked, nil,
		},
		"the user has no right, and may not ask for it": {with(withRoom, pathPods, refusal(403, "Forbidden", right)), []string{"because you may not create pods there.\n"}, asked, nil},
		"a webhook supports no dry run": {
			with(withRoom, pathPods, refusal(400, "BadRequest", `admission webhook "x" does not support dry run`)), []string{`Not looked at: admission in namespace default (admission webhook "x" does not support dry run).`}, asked, nil,
		},
		"it is too busy": {with(withRoom, pathPods, refusal(429, "TooManyRequests", "slow down")), []string{"Not looked at: admission in namespace default (slow down)."}, asked, nil},
		"it makes another pod of it": {
			with(withRoom, pathPods, `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x", "annotations": {"cpuset-scheduler": "true"}}, "spec": {"schedulerName": "koord-scheduler", "containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}}`, "warning", "be careful"),
			[]string{"default/p  2 CPUs of its own", "the API server warns: p: be careful\n", "for scheduler koord-scheduler, which is not seen to run"}, "", errNoRoom,
		},
		"its scheduler runs": {
			with(withRoom, pathPods, `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}, "spec": {"schedulerName": "koord-scheduler", "containers": [{"name": "c"}]}}`,
				pathLeases, strings.ReplaceAll(leases, "kube-scheduler", "koord-scheduler")), []string{"1 of 1 pod"}, "koord-scheduler", nil,
		},
		"its scheduler is not known to run": {
			with(withRoom, pathPods, `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "x"}, "spec": {"schedulerName": "koord-scheduler", "containers": [{"name": "c"}]}}`,
				pathLeases, refusal(403, "Forbidden", "no leases")), []string{"1 of 1 pod", "Not looked at: whether scheduler koord-scheduler runs: you may not list Leases.\n"}, "", nil,
		},
	} {
		out, err := kubectl(t, x.paths, "fit", "-f", file)
		if !errors.Is(err, x.err) || x.err == nil && err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range x.want {
			if !strings.Contains(out, want) || x.absent != "" && strings.Contains(out, x.absent) {
				t.Errorf("%s: want %q and not %q in\n%s", name, want, x.absent, out)
			}
		}
	}
}

// TestFitRefusesUnknownFields checks manifests that kubectl apply refuses, too.
func TestFitRefusesUnknownFields(t *testing.T) {
	dir := t.TempDir()
	const container = "containers: [{name: c}]"
	for name, x := range map[string]struct{ text, want string }{
		"of a container": {"kind: Pod\nmetadata: {name: p}\nspec: {containers: [{name: c, imagePulPolicy: Never}]}\n", `document 1: Pod p: unknown field "spec.containers[0].imagePulPolicy"`},
		"of a spec":      {"kind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {contaners: [{name: c}]}\n", `document 1: Pod p: unknown field "spec.contaners"`},
		"two": {"kind: Pod\nmetadata: {name: p, lables: {a: b}}\nspec: {containers: [{name: c, resources: {reqests: {cpu: 1}}}]}\n",
			`document 1: Pod p: unknown field "metadata.lables", unknown field "spec.containers[0].resources.reqests"`},
		"of a template":      {"kind: Deployment\napiVersion: apps/v1\nmetadata: {name: d}\nspec: {template: {spec: {containers: [{name: c, resorces: {}}]}}}\n", `document 1: Deployment d: unknown field "spec.template.spec.containers[0].resorces"`},
		"of a Deployment":    {"kind: Deployment\nmetadata: {name: d}\nspec: {replcas: 2, template: {spec: {" + container + "}}}\n", `document 1: Deployment d: unknown field "spec.replcas"`},
		"of a Job in a List": {"kind: List\nitems: [{kind: Job, apiVersion: batch/v1, metadata: {name: j}, spec: {template: {spec: {nodSelector: {}, " + container + "}}}}]\n", `document 1: items[0]: Job j: unknown field "spec.template.spec.nodSelector"`},
		"a value of another type": {"kind: Pod\nmetadata: {name: p}\nspec: {" + container + "}\n---\nkind: Deployment\nmetadata: {name: d}\nspec: {template: {spec: {hostNetwork: 1, " + container + "}}}\n",
			"document 2: Deployment d: spec.template.spec.hostNetwork: its type is number, which does not belong there"},
		"of a kind that is not Kubernetes' own": {"kind: Rollout\napiVersion: argoproj.io/v1alpha1\nmetadata: {name: r}\nspec: {strategy: {canary: {}}, template: {spec: {" + container + "}}}\n", ""},
		"none":                                  {"kind: CronJob\napiVersion: batch/v1\nmetadata: {name: j, creationTimestamp: null}\nspec: {schedule: '@daily', jobTemplate: {spec: {template: {spec: {" + container + "}}}}}\nstatus: {}\n", ""},
	} {
		file := filepath.Join(dir, "x.yaml")
		if err := os.WriteFile(file, []byte(x.text), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := kubectl(t, withRoom, "fit", file)
		if x.want == "" && err != nil || x.want != "" && (err == nil || err.Error() != file+": "+x.want) {
			t.Errorf("%s: %v, want %q\n%s", name, err, x.want, out)
		}
	}
}

// TestObjectsOfTheManifestsAreNoRefusal checks a pod whose namespace does not
// exist yet, because the manifests create it.
func TestObjectsOfTheManifestsAreNoRefusal(t *testing.T) {
	file := filepath.Join(t.TempDir(), "all.yaml")
	const all = "kind: Namespace\nmetadata: {name: new}\n---\nkind: Pod\nmetadata: {name: p, namespace: new}\nspec: {containers: [{name: c}]}\n"
	if err := os.WriteFile(file, []byte(all), 0o600); err != nil {
		t.Fatal(err)
	}
	paths := with(withRoom, "POST /api/v1/namespaces/new/pods", refusal(404, "NotFound", `namespaces "new" not found`))
	const want = `Not looked at: admission of p, because the manifests create Namespace new (namespaces "new" not found).`
	if out, err := kubectl(t, paths, "fit", file); err != nil || !strings.Contains(out, want) {
		t.Errorf("%v: want %q in\n%s", err, want, out)
	}
}

// TestFitTakesAPodThatExists asks for one more pod like one that runs. The API
// server must get a pod without the fields that a server fills in, and with
// another name.
func TestFitTakesAPodThatExists(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"exported.yaml": "kind: Pod\nmetadata: {name: db, namespace: default, uid: u1, resourceVersion: '7', annotations: {cpuset-scheduler: 'true', tenon.sh/cpus: '{}'}}\nspec: {nodeName: node-1, containers: [{name: c, resources: {limits: {cpu: '4'}}}]}\nstatus: {phase: Running}\n",
		"applied.yaml":  "kind: Pod\nmetadata: {name: db, annotations: {cpuset-scheduler: 'true'}}\nspec: {containers: [{name: c, resources: {limits: {cpu: '4'}}}]}\n",
		"deploy.yaml":   "kind: Deployment\nmetadata: {name: web, namespace: default}\nspec: {replicas: 2, template: {metadata: {annotations: {cpuset-scheduler: 'true'}}, spec: {containers: [{name: c, resources: {limits: {cpu: '2'}}}]}}}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const db = "\ndefault/db runs on node-1 already: its CPUs 0-3 count as taken, and the answer is for one more pod\n"
	owned := strings.Replace(pods, `{"metadata": {"name": "db", "namespace": "default",`, `{"metadata": {"name": "web-5d-x", "namespace": "default", "ownerReferences": [{"kind": "ReplicaSet", "name": "web-5d", "controller": true}],`, 1)
	for args, x := range map[string]struct{ pods, want string }{
		"pod/db":                       {pods, db},
		"po/db -n default":             {pods, db},
		"-f " + dir + "/exported.yaml": {pods, db},
		dir + "/applied.yaml":          {pods, db},
		dir + "/deploy.yaml":           {owned, "\n1 pod of Deployment web runs already: its CPUs 0-3 count as taken, and the answer is for more pods\n"},
	} {
		paths := with(withRoom, "/api/v1/pods", x.pods, "sent", "")
		out, err := kubectl(t, paths, append([]string{"fit"}, strings.Fields(args)...)...)
		if err != nil || !strings.Contains(out, x.want) || !strings.Contains(out, "The API server was asked") {
			t.Errorf("%s: %v: want %q in\n%s", args, err, x.want, out)
		}
		var p corev1.Pod
		if err := json.Unmarshal([]byte(paths["sent"]), &p); err != nil {
			t.Errorf("%s: want one pod: %v in %q", args, err, paths["sent"])
		}
		if p.Name != "" || p.GenerateName == "" || p.UID != "" || p.ResourceVersion != "" || p.Spec.NodeName != "" || p.Status.Phase != "" || len(p.Annotations) != 1 {
			t.Errorf("%s: the API server is asked for %+v", args, p)
		}
	}
	for args, want := range map[string]string{
		"pod/none":       `there is no pod "none" in namespace default`,
		"deployment/web": "deployment/web is no file: want a manifest or pod/NAME, such as kubectl get deployment/web -o yaml | kubectl tenon fit -f -",
		"deployment web": "deployment/web is no file: want a manifest or pod/NAME, such as kubectl get deployment/web -o yaml | kubectl tenon fit -f -",
		"deployment":     "deployment: open deployment: no such file or directory",
		"pod none":       `there is no pod "none" in namespace default`,
		"pod db -n shop": "",
		"pod/db -n shop": "", // it waits, so nothing of it counts as taken
	} {
		out, err := kubectl(t, withRoom, append([]string{"fit"}, strings.Fields(args)...)...)
		if want != "" && (err == nil || err.Error() != want) || strings.Contains(out, "already") {
			t.Errorf("%s: %v, want %q; and\n%s", args, err, want, out)
		}
	}
}
