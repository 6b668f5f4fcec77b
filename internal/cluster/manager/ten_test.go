package manager

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

var update = flag.Bool("update", false, "rewrite the table of situations")

// TestTenSituations computes the batch resources of ten nodes in two ways: by
// the agent's policy, its report and the manager, and by the formula of
// Koordinator. The two results may differ by 1 or 2 thousandths of a CPU,
// because averages are rounded differently. In an eleventh situation they must
// differ: Tenon keeps the amounts that running pods request.
func TestTenSituations(t *testing.T) {
	base := func(change func(*overcommit.Config)) overcommit.Config {
		c := colocationDefaults()
		c.Window, c.Look = 5*time.Minute, time.Minute
		if change != nil {
			change(&c)
		}
		return c
	}
	none := func() *simulatedNode { return newSimulated(16, 64*gib, base(nil)) }
	busy := []job{{class: node.LS, asked: 4000, used: 2500, wants: 8 * gib, has: 6 * gib}, {class: node.LSR, asked: 2000, used: 700, wants: 4 * gib, has: 3 * gib}}
	with := func(c overcommit.Config, work ...job) *simulatedNode {
		s := newSimulated(16, 64*gib, c)
		s.system, s.held, s.work = 400, 2*gib, work
		return s
	}
	var text strings.Builder
	fmt.Fprintln(&text, "# A node of 16 CPUs and 64 GiB, watched for more than the window of its metrics. Each line is what batch work is promised,\n# term by term; then what the manager published of it; then what the reference's formula gives.")
	for i, one := range []struct {
		name    string
		node    *simulatedNode
		kept    unit.MilliCPU // CPU that the kubelet reserves
		keptToo unit.Bytes
		stands  [kinds]int64 // the amounts that the node had before
	}{
		{name: "nothing runs", node: none()},
		{name: "services use less than they asked for", node: with(base(nil), busy...)},
		{name: "the same, by the larger of request and use", node: with(base(func(c *overcommit.Config) {
			c.CPU.Policy, c.Memory.Policy = overcommit.ByMaxUsageRequest, overcommit.ByMaxUsageRequest
		}), busy...)},
		{name: "the same, memory by request", node: with(base(func(c *overcommit.Config) { c.Memory.Policy = overcommit.ByRequest }), busy...)},
		{name: "a service of class LSE counts by request", node: with(base(nil), append(busy, job{class: node.LSE, asked: 3000, used: 100, wants: gib, has: gib})...)},
		{name: "what best-effort work uses is not taken off", node: with(base(nil), append(busy, job{class: node.BE, asked: -1, used: 5000, wants: -1, has: 10 * gib})...)},
		{name: "the kubelet keeps 1500m and 4 GiB", node: with(base(nil), busy...), kept: 1500, keptToo: 4 * gib},
		{name: "an annotation reserves 2 CPUs", node: with(base(func(c *overcommit.Config) { c.ReservedCPU = 2000 }), busy...)},
		{name: "no more than 25% of CPU and 20% of memory", node: with(base(func(c *overcommit.Config) {
			c.CPU.LimitPercent, c.Memory.LimitPercent = node.Some[unit.Percent](25), node.Some[unit.Percent](20)
		}), busy...)},
		{name: "services use all there is", node: with(base(nil), job{class: node.LS, asked: 8000, used: 11000, wants: 40 * gib, has: 50 * gib})},
		{name: "running pods request more than the formula gives", node: with(base(nil), job{class: node.LS, asked: 8000, used: 7200, wants: 40 * gib, has: 36 * gib},
			job{class: node.BE, asked: 3500, used: 1200, wants: 6 * gib, has: 2 * gib}), stands: [kinds]int64{5000, int64(8 * gib)}},
	} {
		for range 20 {
			one.node.pass(20 * time.Second)
		}
		api := one.node.node(one.kept, one.keptToo)
		if one.stands != [kinds]int64{} {
			giveBatch(api, one.stands[cpu], one.stands[memory])
		}
		status := one.node.report()
		v := Decide(Case{At: epoch, Rules: one.node.config.Overcommit, Node: factsOf(api), Report: Sighting{Batch: &status.Batch, Seen: epoch, Fresh: true}})
		fmt.Fprintf(&text, "\n%d. %s\n", i+1, one.name)
		for k, line := range []string{one.node.state.Batch.Offer.CPU.String(), one.node.state.Batch.Offer.Memory.String()} {
			k := kind(k)
			got, want := v.Want[k].Or(-1), one.node.reference(k, api)
			fmt.Fprintf(&text, "   %-12v %s\n   %12s published %s, reference %s\n", k, line, "", k.printAmount(got), k.printAmount(want))
			if v.State == Held {
				want = [kinds]int64{3500, int64(6 * gib)}[k]
			}
			if d := got - want; d < -3 && k == cpu || d > 3 && k == cpu || k == memory && (d < -8192 || d > 8192) {
				t.Errorf("%s: %v is %s, the reference gives %s", one.name, k, k.printAmount(got), k.printAmount(want))
			}
		}
		if v.State != Published {
			fmt.Fprintf(&text, "   %s: %s\n", v.State, v.Reason)
		}
	}
	path := filepath.Join("testdata", "ten-situations.txt")
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || string(want) != text.String() {
		t.Errorf("%s is not what comes out (%v); go test ./internal/cluster/manager -run TestTenSituations -update\n%s", path, err, text.String())
	}
}

// TestAnAgentThatStartsTakesNothingAway checks the first reports of an agent.
// They contain the amount 0, because the agent has measured nothing yet. They
// must not lower the published amounts.
func TestAnAgentThatStartsTakesNothingAway(t *testing.T) {
	c := colocationDefaults()
	c.Window, c.Look = 5*time.Minute, time.Minute
	s := newSimulated(16, 64*gib, c)
	s.work = []job{{class: node.LS, asked: 1000, used: 500, wants: gib, has: gib}}
	n := giveBatch(s.node(0, 0), 5200, 30<<30)
	var m Memory
	for second := range 120 {
		s.pass(time.Second)
		status := s.report()
		v := Decide(Case{At: s.snap.At, Rules: c, Node: factsOf(n), Report: Sighting{Batch: &status.Batch, Seen: s.snap.At, Fresh: true}, Memory: m})
		m = v.Memory
		got := v.Want[cpu].Or(0)
		switch {
		case second == 0 && (v.State != Starting || got != 5200):
			t.Fatalf("the first report makes it %d, %s: %s", got, v.State, v.Reason)
		case got < 5200:
			t.Fatalf("after %d s there is %d, %s: %s", second, got, v.State, v.Reason)
		case second == 119 && got != 9100:
			t.Errorf("in the end there is %d", got)
		}
	}
	status := newSimulated(16, 64*gib, c)
	status.pass(time.Second)
	first := status.report()
	v := Decide(Case{At: epoch, Rules: c, Node: factsOf(n), Report: Sighting{Batch: &first.Batch, Seen: epoch, Fresh: true}, Memory: Memory{Good: epoch.Add(-15 * time.Minute)}})
	if v.State != Stale {
		t.Errorf("an agent that never measures keeps %s", amounts(v.Want))
	}
}
