package place

import (
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

// TestANodeExplainsItselfWithNumbers compares Explain with Room. Room must
// return the same text for similar nodes. Explain must add the numbers of the
// node and the names of its pods.
func TestANodeExplainsItselfWithNumbers(t *testing.T) {
	l := New()
	l.Learn("n", Report{Topology: machine(1, 2, 2, 2), Keep: 1})
	l.Learn("m", Report{Topology: machine(1, 2, 2, 2), Keep: 1})
	l.Learn("static", Report{Topology: machine(1, 2, 2, 2), Manager: "the kubelet's static policy"})
	burst := cpus.PodRequest{Request: cpus.Request{Policy: cpus.Shared, CPUs: 4, CPU: 3500}}
	for node, uid := range map[string]UID{"n": "1", "m": "2"} {
		if _, why := l.Assume(Pod{uid, burst}, node); why != cpus.Fits {
			t.Fatal(why)
		}
	}
	if _, why := l.Assume(Pod{"3", cpus.PodRequest{Request: cpus.Request{Policy: cpus.Pool, CPU: unit.CPUs(2)}}}, "m"); why != cpus.Fits {
		t.Fatal(why)
	}
	name := func(uid UID) string { return "shop/web-" + string(uid) }
	own := cpus.PodRequest{Request: cpus.Request{Policy: cpus.Exclusive, CPUs: 6}}
	if a, b := l.View("n").Room(&own), l.View("m").Room(&own); a != cpus.NeededShared || a != b {
		t.Errorf("the nodes say %q and %q", a, b)
	}
	for node, want := range map[string]string{
		"n":      "no room for own CPUs: 6 asked, 4 can be given: 8 open, of which 4 stay open for shop/web-1, which requests 3500m",
		"m":      "no room for own CPUs: 6 asked, 2 can be given: 8 open, of which 6 stay open for shop/web-2 and shop/web-3, which request 5500m",
		"static": "another manager binds CPUs on the node: the kubelet's static policy",
		"none":   "no agent has reported the CPUs of the node",
	} {
		if why := l.View(node).Explain(&own, name); why.Full() != want {
			t.Errorf("%s says %q\nwant %q", node, why.Full(), want)
		}
	}
	own.CPUs = 2
	if why := l.View("n").Explain(&own, name); why.Code != cpus.Fits {
		t.Errorf("there is room: %+v", why)
	}
}
