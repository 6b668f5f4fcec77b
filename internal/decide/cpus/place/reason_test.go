package place

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

func set(t *testing.T, list string) unit.CPUSet {
	t.Helper()
	s, err := unit.ParseCPUSet(list)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// work is a workload that holds CPUs.
type work struct {
	name, cpus, home string
	grade            cpus.Policy
	request          unit.MilliCPU
}

func made(t *testing.T, m *pick.Map, keep int, all ...work) Node {
	t.Helper()
	holds := map[UID]cpus.Allocation{}
	for _, w := range all {
		holds[UID(w.name)] = cpus.Allocation{Policy: w.grade, CPUs: set(t, w.cpus), Domain: set(t, w.home), CPU: w.request}
	}
	return NewNode(m, unit.CPUSet{}, keep, holds)
}

// TestEachReasonHasTheNumbersOfTheNode checks the words for each reason: they
// name the kind of the claim, what is asked, what the node can give, and which
// work needs the rest.
func TestEachReasonHasTheNumbersOfTheNode(t *testing.T) {
	eight, four := pick.Compile(machine(1, 2, 2, 2)), pick.Compile(machine(2, 1, 2, 2)) // two L3 caches, or two NUMA nodes, of four CPUs
	name := func(uid UID) string { return string(uid) }
	own := func(set string) work { return work{"db", set, "", cpus.Exclusive, 0} }
	web := work{"shop/web", "4-5", "0-7", cpus.Shared, 1500}
	burst := work{"shop/burst", "0-7", "0-7", cpus.Pool, 4000}
	for what, c := range map[string]struct {
		m     *pick.Map
		keep  int
		works []work
		claim cpus.Request
		why   cpus.Code
		want  string
	}{
		"too few are open": {eight, 1, []work{own("0-4")}, cpus.Request{Policy: cpus.Exclusive, CPUs: 4}, cpus.TooFewOpen,
			"no room for own CPUs: 4 asked, 2 can be given: 3 open, of which 1 stays open for work without own CPUs"},
		"the last one": {eight, 1, nil, cpus.Request{Policy: cpus.Exclusive, CPUs: 8}, cpus.LastOpen,
			"no room for own CPUs: 8 asked, 7 can be given: 8 open, of which 1 stays open for work without own CPUs"},
		"one burst pod blocks own CPUs": {eight, 1, []work{web, burst}, cpus.Request{Policy: cpus.Exclusive, CPUs: 4}, cpus.NeededShared,
			"no room for own CPUs: 4 asked, 2 can be given: 8 open, of which 6 stay open for shop/burst and shop/web, which request 5500m"},
		"small requests in two caches": {eight, 1, []work{{"shop/web", "0-3", "0-3", cpus.Shared, 500}, {"shop/api", "4-7", "4-7", cpus.Shared, 500}}, cpus.Request{Policy: cpus.Exclusive, CPUs: 7}, cpus.NeededShared,
			"no room for own CPUs: 7 asked, 6 can be given: 8 open, of which 2 stay open for shop/api and shop/web, which request 1000m in several places"},
		"not in one NUMA node": {four, 0, []work{own("0,4")}, cpus.Request{Policy: cpus.Exclusive, CPUs: 4, Within: cpus.NUMA}, cpus.TooFewNear,
			"no room for own CPUs: 4 asked in one NUMA node, 3 can be given: 6 open"},
		"on too many NUMA nodes": {four, 0, []work{own("0,4")}, cpus.Request{Policy: cpus.Exclusive, CPUs: 4, Fewest: true}, cpus.TooManyNodes,
			"no room for own CPUs: 4 asked on the fewest NUMA nodes, 3 can be given: 6 open"},
		"a part of a core": {eight, 0, nil, cpus.Request{Policy: cpus.Exclusive, CPUs: 3, Bind: cpus.OnlyWhole}, cpus.NotWhole,
			"no room for own CPUs: 3 asked as whole cores, and a core has 2 CPUs"},
		"halves of cores": {eight, 0, []work{own("0,2")}, cpus.Request{Policy: cpus.Exclusive, CPUs: 6, Bind: cpus.OnlyWhole}, cpus.TooFewWhole,
			"no room for own CPUs: 6 asked as whole cores, 4 can be given: 6 open (4 on whole cores)"},
		"few cores": {eight, 0, []work{own("0-1")}, cpus.Request{Policy: cpus.Exclusive, CPUs: 4, Bind: cpus.OnlySpread}, cpus.TooFewCores,
			"no room for own CPUs: 4 asked, one of each core, 3 can be given: 6 open (on 3 cores)"},
		"few CPUs for seats": {eight, 1, []work{own("0-4")}, cpus.Request{Policy: cpus.Shared, CPUs: 4, CPU: 500}, cpus.TooFewShared,
			"no room for seats: 4 seats for a request of 500m asked, 3 open"},
		"few CPUs for the request of seats": {eight, 1, []work{own("0-4")}, cpus.Request{Policy: cpus.Shared, CPUs: 2, CPU: 3500}, cpus.TooFewShared,
			"no room for seats: 2 seats for a request of 3500m asked, 3 open"},
		"seats in one NUMA node": {four, 1, []work{own("0-1,4")}, cpus.Request{Policy: cpus.Shared, CPUs: 4, CPU: 500, Within: cpus.NUMA}, cpus.TooFewSharedNear,
			"no room for seats: 4 seats for a request of 500m in one NUMA node asked, 3 open in the best"},
		"others request the CPUs of the seats": {eight, 1, []work{web, burst}, cpus.Request{Policy: cpus.Shared, CPUs: 2, CPU: 3000}, cpus.SharedRequested,
			"no room for seats: 2 seats for a request of 3000m asked, 2500m left: 8 open, of which shop/burst and shop/web request 5500m"},
		"others request the CPUs of the seats in one NUMA node": {four, 1, []work{{"a", "0-1", "0-3", cpus.Shared, 3300}, {"b", "4-5", "4-7", cpus.Shared, 3900}},
			cpus.Request{Policy: cpus.Shared, CPUs: 2, CPU: 1500, Within: cpus.NUMA}, cpus.SharedRequested,
			"no room for seats: 2 seats for a request of 1500m in one NUMA node asked, 700m left in the best: 8 open, of which b and a request 7200m"},
		"few CPUs for a pool": {eight, 1, []work{own("0-4")}, cpus.Request{Policy: cpus.Pool, CPU: 4000}, cpus.TooFewPool,
			"no room for a pool: a request of 4000m asked, 3 open"},
		"no CPU for a pool": {eight, 0, []work{own("0-7")}, cpus.Request{Policy: cpus.Pool}, cpus.TooFewPool,
			"no room for a pool: a request of 0m asked, none open"},
		"a pool in one NUMA node": {four, 1, []work{own("0,4")}, cpus.Request{Policy: cpus.Pool, CPU: 3500, Within: cpus.NUMA}, cpus.TooFewPoolNear,
			"no room for a pool: a request of 3500m in one NUMA node asked, 3 open in the best"},
		"others request the CPUs of the pool": {eight, 1, []work{burst}, cpus.Request{Policy: cpus.Pool, CPU: 4500}, cpus.PoolRequested,
			"no room for a pool: a request of 4500m asked, 4000m left: 8 open, of which shop/burst requests 4000m"},
		"nothing is demanded": {eight, 0, nil, cpus.Request{Policy: cpus.Exclusive}, cpus.NoDemand, "the demand is for no CPU"},
		"it fits":             {eight, 0, nil, cpus.Request{Policy: cpus.Exclusive, CPUs: 8}, cpus.Fits, ""},
	} {
		n := made(t, c.m, c.keep, c.works...)
		why := n.Explain(c.claim, name)
		if got := why.Full(); why.Code != c.why || got != c.want {
			t.Errorf("%s: %q\n got %q\nwant %q", what, why.Code, got, c.want)
		}
	}
}

func TestManySharersAreCounted(t *testing.T) {
	name := func(uid UID) string { return string(uid) }
	m := pick.Compile(machine(1, 1, 2, 1))
	n := made(t, m, 0, work{"c", "", "", cpus.Pool, 100}, work{"a", "", "", cpus.Pool, 300}, work{"d", "", "", cpus.Pool, 100}, work{"b", "", "", cpus.Pool, 200})
	var r cpus.Reason
	if n.name(&r, name); !slices.Equal(r.Others, []string{"a", "b"}) || r.OthersMore != 2 || r.Shared != 700 {
		t.Errorf("%+v", r)
	}
	r, n = cpus.Reason{}, n.Without("b")
	if n.name(&r, name); !slices.Equal(r.Others, []string{"a", "c", "d"}) || r.OthersMore != 0 {
		t.Errorf("%+v", r)
	}
}

// TestTheNumbersAreTrue asks random nodes for own CPUs, seats and pools. A claim
// for the number that a reason says can be given, or is left, must fit, and a claim
// for one more must not. A text must be about the kind of its claim.
func TestTheNumbersAreTrue(t *testing.T) {
	rnd := rand.New(rand.NewPCG(51, 52))
	seen := map[cpus.Code]int{}
	for range 3000 {
		m := pick.Compile(machine(1+rnd.IntN(2), 1+rnd.IntN(2), 1+rnd.IntN(3), 1+rnd.IntN(2)))
		n := NewNode[UID](m, unit.CPUSet{}, rnd.IntN(3), nil)
		sharers := 0
		claim := func() cpus.Request {
			c := cpus.Request{
				Policy: cpus.Policy(1 + rnd.IntN(3)), CPUs: 1 + rnd.IntN(m.Len()), Within: []cpus.Level{cpus.Machine, cpus.NUMA}[rnd.IntN(2)],
				Bind: cpus.Bind(rnd.IntN(5)), Fewest: rnd.IntN(4) == 0,
			}
			if c.Policy != cpus.Exclusive {
				c.CPU, c.Bind, c.Fewest = unit.MilliCPU(rnd.IntN(c.CPUs*1000)), 0, false
			}
			return c
		}
		for i := range rnd.IntN(4) {
			c := claim()
			if o, why := n.Resize(c, unit.CPUSet{}); why == cpus.Fits {
				n = n.With(UID(fmt.Sprint(i)), o.Allocation(c))
				if c.Policy != cpus.Exclusive {
					sharers++
				}
			}
		}
		c := claim()
		why := n.Explain(c, func(uid UID) string { return string(uid) })
		_, fit := n.Resize(c, unit.CPUSet{})
		if why.Code != fit {
			t.Fatalf("%+v: %v, and the choice says %v", c, why.Code, fit)
		}
		if why.Code == cpus.Fits {
			continue
		}
		seen[why.Code]++
		kind := map[cpus.Policy]string{cpus.Exclusive: "own CPUs", cpus.Shared: "seats", cpus.Pool: "a pool"}[c.Policy]
		if text := why.Full(); !strings.HasPrefix(text, "no room for "+kind+": ") || !strings.HasPrefix(why.Code.Text(), "no room for "+kind+": ") {
			t.Fatalf("%+v: %q", c, text)
		}
		u := m.Sum(n.seats)
		if c.Policy == cpus.Exclusive && why.Code != cpus.NotWhole {
			for less := c; less.CPUs > why.Given; less.CPUs-- {
				if u.Room(&less) == cpus.Fits {
					t.Fatalf("%+v: %+v, and %d fit", c, why, less.CPUs)
				}
			}
			if some := c; why.Given > 0 {
				if some.CPUs = why.Given; u.Room(&some) != cpus.Fits {
					t.Fatalf("%+v: %+v, and %d do not fit", c, why, why.Given)
				}
			}
		}
		if why.Code == cpus.SharedRequested || why.Code == cpus.PoolRequested {
			some, more := c, c
			some.CPU, more.CPU = why.CPU, why.CPU+1
			if why.CPU > 0 && u.Room(&some) != cpus.Fits || u.Room(&more) == cpus.Fits || sharers == 0 {
				t.Fatalf("%+v: %+v with %d sharers", c, why, sharers)
			}
		}
	}
	if len(seen) < 12 {
		t.Errorf("only the reasons %v", seen)
	}
}
