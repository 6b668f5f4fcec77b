package main

import (
	"errors"
	"strings"
	"testing"
	"unicode"
)

// TestNoTextOfAPodLeavesItsLine prints a pod whose owner has written escape sequences of a
// terminal into each text that Kubernetes does not check, and a Lease with such a holder.
func TestNoTextOfAPodLeavesItsLine(t *testing.T) {
	const evil = `\u001b[2J\u001b]0;x\u0007\r\nnode-1 is healthy\u202e\u0085`
	pod := func(name, spec string) string {
		return `{"metadata": {"name": "` + name + `", "namespace": "default", "uid": "u-` + name + `", "annotations": {"cpuset-scheduler": "true", "tenon.sh/objective": "{\"\\u001b[2J\": 1}", "cpu-policy": "` + evil + `"},
			"ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job` + evil + `", "name": "x` + evil + `", "uid": "o", "controller": true}]},
			"spec": {` + spec + `"containers": [{"name": "c", "image": "` + evil + `", "resources": {"limits": {"cpu": "4"}}}]},
			"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "` + evil + `"}]}}`
	}
	all := `{"kind": "PodList", "apiVersion": "v1", "items": [` + pod("web", `"nodeName": "node-1", `) + `, ` + pod("waits", `"schedulerName": "s`+evil+`", `) + `]}`
	served := strings.Replace(reports, `"cpus": {`, `"objectives": {"services": [{"namespace": "default", "pod": "web", "state": "Missed", "target": "2ms", "cause": "best-effort", "culprit": "`+evil+`"}]}, "cpus": {`, 1)
	paths := with(installed, "/api/v1/pods", all, "/api/v1/namespaces/default/pods/waits", pod("waits", `"schedulerName": "s`+evil+`", `), "/api/v1/namespaces/default/pods/web", pod("web", `"nodeName": "node-1", `),
		"/apis/tenon.sh/v1alpha1/nodereports", served, pathLeases, strings.Replace(leases, `"holderIdentity": "a"`, `"holderIdentity": "`+evil+`"`, 1))
	seen := 0
	for _, args := range [][]string{
		{"top"}, {"objectives"}, {"doctor"}, {"map", "node-1"}, {"explain", "node", "node-1"}, {"explain", "pod", "web", "-n", "default"}, {"explain", "pod", "waits", "-n", "default"},
		{"objectives", "-o", "yaml"}, {"doctor", "-o", "json"},
	} {
		out, err := kubectl(t, paths, args...)
		if err != nil && !errors.Is(err, errUnhealthy) {
			t.Errorf("%q: %v", args, err)
		}
		for line := range strings.SplitSeq(out, "\n") {
			if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.HasPrefix(line, "node-1 is healthy") {
				t.Errorf("%q prints %q", args, line)
			}
		}
		if strings.Contains(out, `\x1b[2J`) || strings.Contains(out, `\u001b[2J`) {
			seen++
		}
	}
	if seen < 4 {
		t.Errorf("%d of the answers have the text of a pod", seen)
	}
}
