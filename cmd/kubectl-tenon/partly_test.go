package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAUserSeesWhatTheyMayRead gives the user only some of the rights. The answer
// names each missing right once.
func TestAUserSeesWhatTheyMayRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.yaml")
	if err := os.WriteFile(file, []byte("kind: Pod\nmetadata: {name: p, annotations: {cpuset-scheduler: 'true'}}\nspec: {containers: [{name: c, resources: {limits: {cpu: 4}}}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const (
		pathNodes, pathReports, pathAllPods = "/api/v1/nodes", "/apis/tenon.sh/v1alpha1/nodereports", "/api/v1/pods"
		pathMyPods                          = "/api/v1/namespaces/default/pods"
		mine                                = `{"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {"name": "db", "namespace": "default", "uid": "u1", "annotations": {"cpuset-scheduler": "true"}}, "spec": {"nodeName": "node-1", "containers": [{"name": "c", "resources": {"limits": {"cpu": "4"}}}]}}]}`
		one                                 = `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "db", "namespace": "default", "uid": "u1", "annotations": {"cpuset-scheduler": "true"}}, "spec": {"nodeName": "node-1", "containers": [{"name": "c", "resources": {"limits": {"cpu": "4"}}}]}}`
		noNodes, noReports, noPods          = "you may not list nodes", "you may not list nodereports.tenon.sh", "you may not list pods of all namespaces"
		role                                = "the ClusterRole tenon-viewer has this right: an administrator can bind it to you\n"
	)
	no := refusal(403, "Forbidden", "forbidden")
	viewer := with(withRoom, pathAllPods, no, pathMyPods, mine)
	owner := with(withRoom, "/api/v1/namespaces/default", no, pathNodes, no, pathReports, no, pathAllPods, no, pathMyPods, mine, pathLeases, no, pathEvents, no)
	getter := with(owner, pathMyPods, no, pathMyPods+"/db", one)
	reader := with(installed, pathNodes, no)
	for name, x := range map[string]struct {
		paths map[string]string
		line  string
		want  []string
		err   string
	}{
		"a namespace user explains a pod":        {owner, "explain pod db", []string{"default/db asks for 4 CPUs of its own.\nIt is on node-1: on which CPUs it runs is not known.\nNot looked at: nodes (" + noNodes + ").\nNot looked at: reports of nodes (" + noReports + ").\n", role}, ""},
		"with the right to get that pod only":    {getter, "explain pod db", []string{"It is on node-1: on which CPUs it runs is not known.\n"}, ""},
		"a pod that is not theirs":               {owner, "explain pod shop/db", nil, "could not find the requested resource"},
		"a pod that does not exist":              {owner, "explain pod web", nil, `there is no pod "web" in namespace default`},
		"a namespace user asks fit":              {owner, "fit " + file, []string{"Whether default/p would find a place is not known: " + noNodes + "\n", "The API server was asked to create such pods", role}, "not all pods would find a place"},
		"a namespace user asks top":              {owner, "top", nil, noNodes + ", and " + noReports + ": an administrator can bind the ClusterRole tenon-viewer to you"},
		"a namespace user asks doctor":           {owner, "doctor", nil, noNodes + ", and " + noReports},
		"a namespace user asks map":              {owner, "map node-1", nil, `there is no report of a node "node-1", and ` + noNodes},
		"a viewer explains their pod":            {viewer, "explain pod db", []string{"It has 4 CPUs (0-3) of node-1 for itself"}, ""},
		"a viewer asks fit":                      {viewer, "fit " + file, []string{"At most 1 of 1 pod would find a place now.\n", "Not looked at: pods of other namespaces, with what they request (" + noPods + ").\n"}, ""},
		"a viewer asks fit for one more":         {viewer, "fit pod/db", []string{"default/db runs on node-1 already", "At most 1 of 1 pod"}, ""},
		"a viewer asks top":                      {viewer, "top", []string{"node-1  12 of 16  OOOO", "the waiting pods are not checked: forbidden"}, ""},
		"a viewer asks doctor":                   {viewer, "doctor", []string{"1 node, 1 with a report\n"}, ""},
		"a viewer asks map":                      {viewer, "map node-1", []string{"not looked at: pods of other namespaces", "A  exclusive  u1  4 CPUs: 0-3"}, ""},
		"without nodes, explain":                 {reader, "explain pod db", []string{"It has 4 CPUs (0-3) of node-1 for itself", role}, ""},
		"without nodes, top":                     {reader, "top", []string{"nodes without a report are not shown, and of the others only the report: " + noNodes + "\n" + role, "node-1  12 of 16"}, ""},
		"without nodes, explain a node":          {reader, "explain node node-2", nil, `there is no report of a node "node-2": reports are there of node-1`},
		"without reports, top":                   {with(installed, pathReports, no), "top", []string{"the reports of the nodes are not shown: " + noReports + "\n", "its report is not known: " + noReports}, ""},
		"without reports, doctor is not content": {with(installed, pathReports, no), "doctor", []string{"1 node, 0 with a report\n  its report is not known: " + noReports + ": node-1"}, "doctor found problems"},
		"without reports, explain isolation":     {with(installed, pathReports, no), "explain isolation", []string{"\nWithout a result\n  node-1: its report is not known: " + noReports + "\n"}, ""},
		"without reports, explain a node":        {with(installed, pathReports, no), "explain node node-1", []string{"node-1: not known: its report is not known: " + noReports + "\n"}, ""},
	} {
		out, err := kubectl(t, x.paths, strings.Fields(x.line)...)
		if x.err == "" && err != nil || x.err != "" && (err == nil || !strings.Contains(err.Error(), x.err)) {
			t.Errorf("%s: %v, want %q\n%s", name, err, x.err, out)
		}
		for _, want := range x.want {
			if strings.Count(out, want) != 1 {
				t.Errorf("%s: want %q once in\n%s", name, want, out)
			}
		}
	}
	// A failure of another kind is no missing right.
	if _, err := kubectl(t, with(installed, pathNodes, refusal(500, "InternalError", "etcd is away")), "top"); err == nil || !strings.Contains(err.Error(), "list the nodes: ") {
		t.Error(err)
	}
}

// TestDoctorSaysThatItKnowsNothingOfTheManager has no Lease of the manager.
func TestDoctorSaysThatItKnowsNothingOfTheManager(t *testing.T) {
	out, err := kubectl(t, installed, "doctor")
	if err != nil || !strings.Contains(out, "it is not known whether tenon-manager runs: no Lease has its name, ") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestADeletedConfigMapIsAProblem checks doctor, top and explain node.
func TestADeletedConfigMapIsAProblem(t *testing.T) {
	const message = "ConfigMap tenon-system/slo-controller-config does not exist: the file of tenond holds"
	lost := strings.Replace(reports, `"published"`, `"conditions": [{"type": "ConfigAccepted", "status": "False", "reason": "ConfigMapMissing", "message": "`+message+`"}], "published"`, 1)
	off := strings.Replace(lost, `"batch": {"cpu": {"amount": "7200m", "policy": "usage", "formula": "7200m", "terms": [{"name": "capacity", "amount": "7200m", "text": "45% of 16000m"}]}},`, "", 1)
	paths := with(installed, "/apis/tenon.sh/v1alpha1/nodereports", off)
	if out, err := kubectl(t, paths, "doctor"); !errors.Is(err, errUnhealthy) || !strings.Contains(out, "\nProblems\n  node-1: ConfigAccepted: ConfigMapMissing: "+message+"\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := kubectl(t, paths, "top"); err != nil || !strings.Contains(out, "  ConfigAccepted\n") {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := kubectl(t, paths, "explain", "node", "node-1"); err != nil || !strings.Contains(out, "Batch work is promised nothing: "+message+".\n") {
		t.Errorf("%v\n%s", err, out)
	}
}

// TestADamagedReportIsNoNodeWithoutCPUs damages each set of CPUs of a report.
func TestADamagedReportIsNoNodeWithoutCPUs(t *testing.T) {
	for name, old := range map[string]string{"a cache": `"cpus": "0-15"`, "a pod": `"cpus": "0-3"`} {
		damaged := strings.Replace(reports, old, `"cpus": "0-x"`, 1)
		out, err := kubectl(t, with(installed, "/apis/tenon.sh/v1alpha1/nodereports", damaged), "explain", "node", "node-1")
		if err != nil || !strings.Contains(out, "\nCPUs for pods: not known, because the report cannot be read: ") || strings.Contains(out, " of 0 CPUs") {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
	}
}
