package policy

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/culprit"
	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/slo"
	"tenon.sh/tenon/internal/decide/suppress"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A crowd is a model of two CPUs that groups of threads share by their weights, as the
// kernel does it: each CPU has a queue, a waking thread goes to an idle CPU if there is
// one, and the group that ran least by its weight runs next. A thread of a larger weight
// runs at once. The crowd counts waits by runner as the program in the kernel does.
type crowd struct {
	rnd     *rand.Rand
	at      time.Duration
	threads []*thread
	groups  map[node.WorkloadID]*group
	running [2]*thread
}

const (
	step  = 200 * time.Microsecond
	slice = 3 * time.Millisecond // for which a thread runs while others wait
)

type group struct {
	workload node.Workload
	weight   float64
	quota    time.Duration // in each period; 0: none
	period   time.Duration
	spent    time.Duration // of it
	fair     float64       // run time divided by the weight
	ran      time.Duration
	held     bool // in this period the quota stopped it
}

type thread struct {
	group      *group
	run, sleep time.Duration // it does both in turn; run 0: it sleeps, -1: it never does
	left       time.Duration // until the end of its run
	until      time.Duration // of its sleep
	cpu        int
	queued     bool
	waited     time.Duration
	since      time.Duration // when it began to run
}

func newCrowd(seed uint64) *crowd {
	c := &crowd{rnd: rand.New(rand.NewPCG(44, seed)), groups: map[node.WorkloadID]*group{}}
	add := func(id node.WorkloadID, class node.Class, weight float64, want time.Duration, threads int, run, sleep time.Duration) {
		g := c.groups[id]
		if g == nil {
			g = &group{workload: node.Workload{ID: id, Class: class}, weight: weight}
			c.groups[id] = g
			u := &g.workload.Usage
			u.Periods, u.ThrottledPeriods, u.Throttled = node.Some[int64](0), node.Some[int64](0), node.Some(time.Duration(0))
			if want > 0 {
				g.workload.Objective.RunQueueDelay = node.Some(want)
				u.Delay = node.RunQueueDelay{Sum: node.Some(time.Duration(0)), Counts: make([]uint64, testBuckets)}
			}
		}
		for range threads {
			c.threads = append(c.threads, &thread{group: g, run: run, sleep: sleep, until: time.Duration(c.rnd.Int64N(int64(10 * time.Millisecond)))})
		}
	}
	const ms = time.Millisecond
	add("front", node.LS, 1, 2*ms, 2, ms, 3*ms)
	add("front", node.LS, 1, 2*ms, 8, 0, 0) // they run with more load
	add("capped", node.LS, 100, 20*ms, 32, 0, 0)
	c.groups["capped"].quota, c.groups["capped"].period = 20*ms, 100*ms
	add("other", node.LS, 1, 0, 4, 0, 0)
	add("daemon", node.System, 100, 0, 2, ms/5, 4*ms)
	for i := range 10 {
		add(node.WorkloadID(fmt.Sprint("job", i)), node.BE, 1, 0, 1, ms/5, 10*ms)
	}
	add("hog", node.BE, 1, 0, 4, 0, 0)
	return c
}

// set changes what the threads of a group do, from the given one on.
func (c *crowd) set(id node.WorkloadID, from int, run, sleep time.Duration) {
	n := 0
	for _, t := range c.threads {
		if t.group == c.groups[id] {
			if n++; n > from {
				t.run, t.sleep, t.until = run, sleep, c.at+time.Duration(c.rnd.Int64N(int64(10*time.Millisecond)))
			}
		}
	}
}

func (t *thread) stopped() bool { return t.group.quota > 0 && t.group.spent >= t.group.quota }

// pass lets one step pass.
func (c *crowd) pass(s *node.Snapshot) {
	c.at += step
	for _, g := range c.groups {
		if g.quota == 0 || c.at%g.period > 0 {
			continue
		}
		u := &g.workload.Usage
		u.Periods = node.Some(u.Periods.Or(0) + 1)
		if g.held {
			u.ThrottledPeriods = node.Some(u.ThrottledPeriods.Or(0) + 1)
		}
		g.spent, g.held = 0, false
	}
	c.wake()
	for cpu := range c.running {
		c.schedule(cpu)
	}
	for _, t := range c.running {
		if t == nil {
			continue
		}
		t.left -= step
		t.group.fair += float64(step) / t.group.weight
		t.group.ran += step
		t.group.spent += step
		s.Usage.CPU = node.Some(s.Usage.CPU.Or(0) + step)
		if t.stopped() {
			t.group.held = true
			u := &t.group.workload.Usage
			u.Throttled = node.Some(u.Throttled.Or(0) + t.group.period - c.at%t.group.period)
		}
	}
	for _, t := range c.threads {
		if t.queued {
			t.waited += step
			c.blame(s, t)
		}
	}
}

// wake queues the threads whose sleep is over.
func (c *crowd) wake() {
	least := c.leastFair()
	for _, t := range c.threads {
		if t.queued || t.left > 0 || t.run == 0 || t.until > c.at || slices.Contains(c.running[:], t) {
			continue
		}
		t.left = time.Hour
		if t.run > 0 {
			t.left = time.Duration(float64(t.run)*(0.5+c.rnd.Float64())).Round(step) + step
		}
		t.group.fair = max(t.group.fair, least-float64(slice))
		c.queue(t)
	}
}

// leastFair returns the smallest run time of a group that runs or waits.
func (c *crowd) leastFair() float64 {
	least := -1.0
	for _, t := range c.threads {
		if t.left > 0 && (least < 0 || t.group.fair < least) {
			least = t.group.fair
		}
	}
	return max(least, 0)
}

// queue lets a thread wait for the idle CPU, or for the one with the shorter queue.
func (c *crowd) queue(t *thread) {
	lengths := [2]int{}
	for cpu, r := range c.running {
		if r != nil {
			lengths[cpu]++
		}
	}
	for _, o := range c.threads {
		if o.queued && !o.stopped() {
			lengths[o.cpu]++
		}
	}
	if lengths[1-t.cpu] < lengths[t.cpu] {
		t.cpu = 1 - t.cpu
	}
	t.queued, t.waited = true, 0
}

// schedule lets the next thread run on a CPU, if the present one ends or must give way.
func (c *crowd) schedule(cpu int) {
	now := c.running[cpu]
	if now != nil && now.left <= 0 {
		now.until = c.at + time.Duration(float64(now.sleep)*(0.5+c.rnd.Float64()))
		now = nil
	}
	if now != nil && now.stopped() {
		c.running[cpu] = nil
		now.queued, now.waited, now = true, 0, nil
	}
	var next *thread
	for _, here := range []bool{true, false} { // an idle CPU takes from the other one
		for _, t := range c.threads {
			if t.queued && (t.cpu == cpu) == here && !t.stopped() && (next == nil || t.group.fair < next.group.fair || t.group == next.group && t.waited > next.waited) {
				next = t
			}
		}
		if next != nil || now != nil {
			break
		}
	}
	if now != nil && next != nil {
		if next.group.weight <= now.group.weight && c.at-now.since < slice {
			next = nil
		}
	}
	if next == nil {
		c.running[cpu] = now
		return
	}
	if now != nil {
		now.queued, now.waited = true, 0
	}
	next.queued, next.cpu, next.since = false, cpu, c.at
	c.running[cpu] = next
	if d := &next.group.workload.Usage.Delay; d.Counts != nil {
		b := 0
		for b < testBuckets-1 && next.waited >= node.DelayBound(b) {
			b++
		}
		d.Counts[b]++
		d.Sum = node.Some(d.Sum.Or(0) + next.waited)
	}
}

// blame adds a step to the waits of a thread for what runs on its CPU.
func (c *crowd) blame(s *node.Snapshot, t *thread) {
	if t.group.workload.Usage.Delay.Counts == nil {
		return
	}
	w := node.Wait{Waiter: t.group.workload.ID, Runner: node.RunnerIdle}
	if r := c.running[t.cpu]; r != nil {
		w.Runner = r.group.workload.ID
	}
	i := slices.IndexFunc(s.Waits, func(o node.Wait) bool { return o.Waiter == w.Waiter && o.Runner == w.Runner })
	if i < 0 {
		i = len(s.Waits)
		s.Waits = append(s.Waits, w)
	}
	s.Waits[i].Time += step
}

// A judge follows a crowd as the agent does, and lets bounds act.
type judge struct {
	*crowd
	snap   node.Snapshot
	slo    slo.Tracker
	single culprit.State
	all    suppress.BackOff
	use    facts.Use
	// bounded is how long each BE workload had a bound, and all of them as "all".
	bounded map[node.WorkloadID]time.Duration
}

func newJudge(seed uint64) *judge {
	j := &judge{crowd: newCrowd(seed), bounded: map[node.WorkloadID]time.Duration{}}
	j.snap.At = time.Unix(1e9, 0)
	return j
}

// seconds lets seconds pass, and judges after each.
func (j *judge) seconds(n int) {
	for range n {
		for range time.Second / step {
			j.pass(&j.snap)
		}
		j.snap.At = j.snap.At.Add(time.Second)
		j.snap.Workloads = nil
		for _, id := range slices.Sorted(maps.Keys(j.groups)) {
			w := j.groups[id].workload
			w.Usage.CPU = node.Some(j.groups[id].ran)
			w.Usage.Delay.Counts = slices.Clone(w.Usage.Delay.Counts)
			j.snap.Workloads = append(j.snap.Workloads, w)
		}
		s := j.snap
		s.Waits = slices.Clone(s.Waits)
		j.use = j.use.Observe(s)
		j.slo = j.slo.Observe(s)
		j.single = j.single.Follow(culprit.Input{SLO: j.slo, Use: j.use, Capacity: unit.CPUs(2), Snapshot: s})
		j.all = j.all.Follow(j.slo, j.single.Alone, s.At)
		if j.all.Permille > 0 {
			j.bounded["all"] += time.Second
		}
		for id, g := range j.groups {
			if g.workload.Class != node.BE {
				continue
			}
			b, bounded := j.single.Bounds[id]
			if g.quota = 0; bounded {
				g.quota, g.period = time.Duration(float64(culprit.Period)*b.May.Cores()), culprit.Period
				j.bounded[id] += time.Second
			}
		}
	}
}

// TestFourFaultsThatAreNotBatchWorks lets a service miss its objective because of its own
// limit, a load that is too large, a slow back end, and the burst of another service,
// beside ten batch pods that work: as TestBatchWorkIsNotToBlame on a cluster does. The
// verdict must say so, and no batch work may have a bound for long. Then batch work
// is to blame, and the pod must be bounded alone.
func TestFourFaultsThatAreNotBatchWorks(t *testing.T) {
	const ms = time.Millisecond
	for name, fault := range map[string]struct {
		begin func(c *crowd)
		of    node.WorkloadID
		want  slo.Cause // "": the objective is kept
	}{
		"own limit":       {func(c *crowd) { c.set("capped", 0, -1, 0) }, "capped", slo.OwnLimit},
		"load":            {func(c *crowd) { c.set("front", 2, -1, 0) }, "front", slo.OwnThreads},
		"slow back end":   {func(c *crowd) { c.set("front", 0, ms, 30*ms); c.set("front", 2, 0, 0) }, "front", ""},
		"another service": {func(c *crowd) { c.set("other", 0, -1, 0) }, "front", slo.OtherService},
		"a hog":           {func(c *crowd) { c.set("hog", 0, -1, 0) }, "front", slo.ForBE},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(2) {
				j := newJudge(seed)
				j.seconds(15)
				if before := j.slo.Judgements(j.snap)["front"]; before.Verdict != slo.Kept || len(j.bounded) > 0 {
					t.Fatalf("seed %d: before the fault: %s because of %s, %v: %+v", seed, before.Verdict, before.Cause, j.bounded, before.Waits)
				}
				fault.begin(j.crowd)
				j.seconds(15)
				got := j.slo.Judgements(j.snap)[fault.of]
				if fault.want == slo.ForBE {
					if j.bounded["hog"] == 0 || len(j.bounded) != 1 || got.Cause != slo.ForBE && got.Verdict != slo.Kept {
						t.Errorf("seed %d: %s because of %s, and bounded were %v", seed, got.Verdict, got.Cause, j.bounded)
					}
					continue
				}
				if got.Cause != fault.want || (got.Verdict == slo.Kept) != (fault.want == "") {
					t.Errorf("seed %d: %s because of %s, want %s: %+v, usually %+v", seed, got.Verdict, got.Cause, fault.want, got.Waits, j.slo.Work[fault.of].Usual)
				}
				for id, long := range j.bounded {
					if long > 10*time.Second {
						t.Errorf("seed %d: %s was bounded for %v", seed, id, long)
					}
				}
			}
		})
	}
}
