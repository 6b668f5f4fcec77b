package reclaim

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	mib  = unit.Bytes(1 << 20)
	page = unit.Bytes(4096)
)

// A batch is a model of a BE workload. The kernel reclaims its cold memory first. It reads
// its hot memory again and again, and waits for each page that is missing.
type batch struct {
	cold, hot, missing unit.Bytes // missing is the part of hot that was reclaimed
	fixed              unit.Bytes // memory that cannot be reclaimed
	waits              time.Duration
	read               int64
	protected          unit.Bytes
	done               node.Reclaim
	asleep             bool          // it reads nothing
	blocked            time.Duration // how long the next write takes
	errno              int
	order              unit.Bytes
	ends               time.Time
}

// A world is a node with a service, some batch work and page cache of the service that
// fills the memory.
type world struct {
	t     *testing.T
	c     Config
	st    State
	s     node.Snapshot
	work  map[node.WorkloadID]*batch
	total unit.Bytes
	free  unit.Bytes
	asked map[node.WorkloadID][]unit.Bytes
}

func newWorld(t *testing.T, percent unit.Percent, work map[node.WorkloadID]*batch) *world {
	w := &world{t: t, c: Config{FreePercent: percent}, work: work, total: 4096 * mib, asked: map[node.WorkloadID][]unit.Bytes{}}
	w.s = node.Snapshot{
		At: time.Unix(1000, 0), MemoryTotal: node.Some(w.total),
		Capabilities: node.Capabilities{node.FeatureMemoryReclaim: {Verdict: node.Yes}},
		Knobs:        node.Knobs{Kernel: node.Kernel{CgroupVersion: 2, PageSize: page}, Now: map[node.Knob]node.Value{}},
	}
	return w
}

// seconds lets so many seconds pass, with a tick in each.
func (w *world) seconds(n int) {
	w.t.Helper()
	for range n {
		w.s.At = w.s.At.Add(time.Second)
		w.s.Workloads = []node.Workload{{ID: "web", Class: node.LS, Cgroup: "web"}}
		for id, b := range w.work {
			w.s.Workloads = append(w.s.Workloads, node.Workload{ID: id, Class: node.BE, Cgroup: node.CgroupPath(id), Usage: w.pass(b)})
			w.s.Knobs.Now[node.Knob{Cgroup: node.CgroupPath(id), File: node.FileMemory}] = node.Memory{Low: b.protected, High: unit.MaxBytes, Max: unit.MaxBytes}
			w.s.Knobs.Now[node.Knob{Cgroup: node.CgroupPath(id), File: node.FileRun}] = node.Running
		}
		w.s.Usage.Free = node.Some(w.free)
		w.st = Decide(w.c, w.st, w.s)
		w.take(w.st.Orders())
	}
}

// pass is one second in the life of a workload.
func (w *world) pass(b *batch) node.Usage {
	if b.done.Running && !w.s.At.Before(b.ends) {
		cold := min(b.order, b.cold)
		hot := min(b.order-cold, b.hot-b.missing)
		b.cold, b.missing = b.cold-cold, b.missing+hot
		w.free += cold + hot
		b.done.Asked, b.done.Got = b.done.Asked+b.order, b.done.Got+cold+hot
		b.done.Running, b.done.Ended, b.done.Errno = false, b.ends, b.errno
	} else if b.missing > 0 && !b.asleep {
		b.read += int64(b.missing / page)
		b.waits += time.Duration(b.missing/mib+1) * 10 * time.Millisecond
		w.free, b.missing = w.free-b.missing, 0
	}
	u := node.Usage{SlowAt: w.s.At, Memory: node.Some(b.fixed + b.cold + b.hot - b.missing), Refaults: node.Some(b.read), Reclaim: b.done}
	u.Pressure.Memory.Some = node.Some(b.waits)
	return u
}

func (w *world) take(orders []node.ReclaimOrder) {
	w.t.Helper()
	var sum unit.Bytes
	for _, o := range orders {
		b := w.work[o.Workload]
		if b == nil {
			w.t.Fatalf("%v asks for memory of other work", o)
		}
		if b.done.Running {
			w.t.Fatalf("%v comes while the last order runs", o)
		}
		if o.Bytes < leastStep || o.Bytes%page != 0 || o.Cgroup != node.CgroupPath(o.Workload) {
			w.t.Fatalf("order %v", o)
		}
		b.order, b.ends, b.done.Running = o.Bytes, w.s.At.Add(b.blocked+time.Millisecond), true
		w.asked[o.Workload] = append(w.asked[o.Workload], o.Bytes)
		sum += o.Bytes
	}
	if sum > 5*mostPerSecond {
		w.t.Fatalf("a tick asks for %v", sum)
	}
}

func (w *world) sum(id node.WorkloadID) (all unit.Bytes) {
	for _, n := range w.asked[id] {
		all += n
	}
	return all
}

// TestColdCacheGoesAndTheHotSetStays gives a workload 200 MiB of cold cache beside a small
// hot set. Later the smallest steps come more and more rarely.
func TestColdCacheGoesAndTheHotSetStays(t *testing.T) {
	b := &batch{cold: 200 * mib, hot: 32 * mib}
	w := newWorld(t, 20, map[node.WorkloadID]*batch{"job": b})
	w.seconds(240)
	if b.cold > 0 {
		t.Errorf("%v of cold cache are left after %v", b.cold, w.asked["job"])
	}
	if back := unit.Bytes(b.read) * page; back > 48*mib {
		t.Errorf("%v of the hot set were read back in four minutes", back)
	}
	read, asked := b.read, len(w.asked["job"])
	w.seconds(3600)
	if more, back := len(w.asked["job"])-asked, unit.Bytes(b.read-read)*page; more > 10 || back > 10*mib {
		t.Errorf("in the next hour %d steps were made and %v read back", more, back)
	}
}

// TestPressureHalvesAStep lets threads wait, and steps be halved. Afterwards they grow again.
func TestPressureHalvesAStep(t *testing.T) {
	b := &batch{cold: 3000 * mib}
	w := newWorld(t, 50, map[node.WorkloadID]*batch{"job": b})
	w.seconds(40)
	before := w.st.Work["job"].Step
	for w.st.Work["job"].Asked == 0 {
		w.seconds(1)
	}
	b.waits += time.Second
	asked := w.st.Work["job"].Asked
	for w.st.Work["job"].Last.Outcome != Stalled {
		w.seconds(1)
	}
	if got := w.st.Work["job"].Step; got != asked/2 || before < 8*mib {
		t.Errorf("the step after pressure is %v, want half of %v", got, asked)
	}
	w.seconds(60)
	if got := w.st.Work["job"].Step; got <= asked/2 {
		t.Errorf("the step is %v a minute later, want more than %v", got, asked/2)
	}
}

// TestNothingIsAskedForWithoutNeed has each reason for which no memory is reclaimed.
func TestNothingIsAskedForWithoutNeed(t *testing.T) {
	memory, run := node.Knob{Cgroup: "job", File: node.FileMemory}, node.Knob{Cgroup: "job", File: node.FileRun}
	for want, change := range map[Hold]func(*node.Snapshot){
		Enough:    func(s *node.Snapshot) { s.Usage.Free = node.Some(2048 * mib) },
		NoService: func(s *node.Snapshot) { s.Workloads = s.Workloads[1:] },
		NotHere:   func(s *node.Snapshot) { s.Capabilities = nil },
		Mixed: func(s *node.Snapshot) {
			s.Workloads = append(s.Workloads, node.Workload{ID: "api", Class: node.LS, Cgroup: "job/api"})
		},
		Ending:    func(s *node.Snapshot) { s.Workloads[1].Ending = node.AskedToEnd },
		Protected: func(s *node.Snapshot) { s.Knobs.Now[memory] = node.Memory{Low: 1024 * mib} },
		Pending:   func(s *node.Snapshot) { s.Workloads[1].Usage.Reclaim.Running = true },
		Stale:     func(s *node.Snapshot) { s.Workloads[1].Usage.SlowAt = s.At.Add(-freshWithin - 1) },
		"":        func(s *node.Snapshot) { s.Workloads[1].Usage.SlowAt = s.At.Add(-freshWithin) },
	} {
		s, c := oneJob()
		change(&s)
		got := Decide(c, State{Allowance: mostPerSecond}, s)
		if hold := got.Work["job"].Hold; hold != want || (len(got.Orders()) > 0) != (want == "") {
			t.Errorf("the reason is %q with orders %v, want %q", hold, got.Orders(), want)
		}
	}
	for name, forget := range map[string]func(*node.Snapshot){
		"the size":       func(s *node.Snapshot) { s.MemoryTotal = node.Maybe[unit.Bytes]{} },
		"free memory":    func(s *node.Snapshot) { s.Usage.Free = node.Maybe[unit.Bytes]{} },
		"its memory":     func(s *node.Snapshot) { s.Workloads[1].Usage.Memory = node.Maybe[unit.Bytes]{} },
		"its refaults":   func(s *node.Snapshot) { s.Workloads[1].Usage.Refaults = node.Maybe[int64]{} },
		"its pressure":   func(s *node.Snapshot) { s.Workloads[1].Usage.Pressure = node.Pressure{} },
		"its protection": func(s *node.Snapshot) { delete(s.Knobs.Now, memory) },
		"their time":     func(s *node.Snapshot) { s.Workloads[1].Usage.SlowAt = time.Time{} },
		"its freezer":    func(s *node.Snapshot) { delete(s.Knobs.Now, run) },
	} {
		s, c := oneJob()
		forget(&s)
		got := Decide(c, State{Allowance: mostPerSecond}, s)
		if hold := got.Work["job"].Hold; hold != Unknown || len(got.Orders()) > 0 {
			t.Errorf("without %s the reason is %q with orders %v", name, hold, got.Orders())
		}
	}
	s, c := oneJob()
	s.Knobs.Now[run] = node.Frozen
	if got := Decide(c, State{Allowance: mostPerSecond}, s); got.Work["job"].Hold != Ending || got.MayRun("job") || got.MayRun("web") {
		t.Errorf("frozen work is held by %q", got.Work["job"].Hold)
	}
	s.Usage.Free = s.MemoryTotal
	if got := Decide(c, State{}, s); got.MayRun("job") {
		t.Error("a step of frozen work goes on because enough is free")
	}
	for _, k := range []node.Knob{memory, run} {
		if !slices.Contains(c.Files(), k.File) || len((Config{}).Files()) > 0 {
			t.Errorf("the snapshot need not show %s, which a decision reads", k.File)
		}
	}
	if got := Decide(Config{}, State{At: s.At, Work: map[node.WorkloadID]*Work{"job": {Step: mib}}}, s); got.Work != nil || !got.At.IsZero() || got.MayRun("job") {
		t.Errorf("a reclaim that is off keeps %+v", got)
	}
}

// oneJob returns a node that lacks free memory, with a service and one BE workload.
func oneJob() (node.Snapshot, Config) {
	job := node.Workload{ID: "job", Class: node.BE, Cgroup: "job", Usage: node.Usage{Memory: node.Some(1024 * mib), Refaults: node.Some[int64](0), SlowAt: time.Unix(1000, 0)}}
	job.Usage.Pressure.Memory.Some = node.Some(time.Duration(0))
	return node.Snapshot{
		At: time.Unix(1000, 0), MemoryTotal: node.Some(4096 * mib), Usage: node.Usage{Free: node.Some(100 * mib)},
		Capabilities: node.Capabilities{node.FeatureMemoryReclaim: {Verdict: node.Yes}},
		Workloads:    []node.Workload{{ID: "web", Class: node.LS, Cgroup: "web"}, job},
		Knobs: node.Knobs{Kernel: node.Kernel{PageSize: page}, Now: map[node.Knob]node.Value{
			{Cgroup: "job", File: node.FileMemory}: node.NoMemoryLimit, {Cgroup: "job", File: node.FileRun}: node.Running,
		}},
	}, Config{FreePercent: 10}
}

// TestABlockedWriteHasNoSuccessor lets the kernel take a minute for one write. Other
// work gets its steps meanwhile.
func TestABlockedWriteHasNoSuccessor(t *testing.T) {
	slow, other := &batch{cold: 500 * mib, blocked: time.Minute}, &batch{cold: 500 * mib}
	w := newWorld(t, 50, map[node.WorkloadID]*batch{"slow": slow, "other": other})
	w.seconds(55)
	if n := len(w.asked["slow"]); n != 1 {
		t.Errorf("%d orders for work whose write blocks", n)
	}
	if n := len(w.asked["other"]); n < 5 {
		t.Errorf("%d orders for the other work in 55 s", n)
	}
	w.seconds(60)
	if n := len(w.asked["slow"]); n < 2 {
		t.Error("there is no step after the write has ended")
	}
}

// TestWhatIsOnItsWayIsNotAskedForTwice has an order that runs and will cover the need.
func TestWhatIsOnItsWayIsNotAskedForTwice(t *testing.T) {
	for share, want := range map[unit.Bytes]Hold{1: Enough, 2: ""} {
		s, c := oneJob()
		other := s.Workloads[1]
		s.Knobs.Now[node.Knob{Cgroup: "other", File: node.FileRun}] = node.Running
		other.ID, other.Cgroup, other.Usage.Reclaim.Running = "other", "other", true
		s.Workloads = append(s.Workloads, other)
		lacks := s.MemoryTotal.Or(0).Percent(10) - s.Usage.Free.Or(0)
		st := State{Allowance: mostPerSecond, Work: map[node.WorkloadID]*Work{"other": {Cgroup: "other", Step: lacks, Asked: lacks / share, AskedAt: s.At}}}
		if got := Decide(c, st, s).Work["job"].Hold; got != want {
			t.Errorf("while 1/%d of the need is on its way, the reason is %q, want %q", share, got, want)
		}
	}
}

// TestAStepIsJudgedOnceItHasSettled gives the reading of one step at several times.
func TestAStepIsJudgedOnceItHasSettled(t *testing.T) {
	for after, want := range map[time.Duration]Outcome{node.ReclaimSettles - time.Second: "", node.ReclaimSettles: Unnoticed} {
		s, c := oneJob()
		s.Workloads[1].Usage.Reclaim = node.Reclaim{Asked: mib, Got: mib, Ended: s.At.Add(-after)}
		st := State{Work: map[node.WorkloadID]*Work{"job": {Cgroup: "job", Step: mib, Asked: mib, AskedAt: s.At.Add(-after - time.Second)}}}
		if got := Decide(c, st, s).Work["job"].Last.Outcome; got != want {
			t.Errorf("%v after its end a step is judged %q, want %q", after, got, want)
		}
	}
}

// TestAStepIsJudgedBetweenTwoReadings has a step from whose start to its end the threads
// waited for 60 ms. The readings are 5.5 s apart; the decisions would be 6.5 s.
func TestAStepIsJudgedBetweenTwoReadings(t *testing.T) {
	s, c := oneJob()
	asked := s.At.Add(-6500 * time.Millisecond)
	u := &s.Workloads[1].Usage
	u.SlowAt, u.Reclaim = s.At.Add(-500*time.Millisecond), node.Reclaim{Asked: mib, Got: mib, Ended: asked.Add(500 * time.Millisecond)}
	u.Pressure.Memory.Some = node.Some(60 * time.Millisecond)
	st := State{Work: map[node.WorkloadID]*Work{"job": {Cgroup: "job", Step: mib, Asked: mib, AskedAt: asked, Then: Counters{At: asked.Add(500 * time.Millisecond)}}}}
	if got := Decide(c, st, s).Work["job"].Last; got.Outcome != Stalled || got.Over != 5500*time.Millisecond {
		t.Errorf("the step is judged %+v", got)
	}
	u.SlowAt = s.At.Add(-time.Second - 1) // before the step has settled
	if got := Decide(c, st, s).Work["job"].Last; got.Outcome != "" {
		t.Errorf("a reading that is too early judges the step %+v", got)
	}
}

// TestAStepOfNoWholePagesGrows has a step whose order was rounded down to pages.
func TestAStepOfNoWholePagesGrows(t *testing.T) {
	s, c := oneJob()
	s.Workloads[1].Usage.Reclaim = node.Reclaim{Asked: 4 * mib, Got: 4 * mib, Ended: s.At.Add(-node.ReclaimSettles)}
	st := State{Work: map[node.WorkloadID]*Work{"job": {Cgroup: "job", Step: 4*mib + 100, Asked: 4 * mib, AskedAt: s.At.Add(-6 * time.Second)}}}
	if got := Decide(c, st, s).Work["job"].Step; got < 8*mib {
		t.Errorf("the next step is %v", got)
	}
}

// TestLittleToReclaimIsNoReasonToGoOn has memory that cannot be reclaimed: the kernel
// answers each time that it found less (EAGAIN).
func TestLittleToReclaimIsNoReasonToGoOn(t *testing.T) {
	b := &batch{cold: 10 * mib, fixed: 1000 * mib}
	w := newWorld(t, 50, map[node.WorkloadID]*batch{"job": b})
	w.seconds(1800)
	if all := w.sum("job"); all > 60*mib || b.cold > 0 {
		t.Errorf("asked for %v where 10 MiB can go, and %v are left: %v", all, b.cold, w.asked["job"])
	}
	if last := w.st.Work["job"].Last; last.Outcome != Little || last.Got != 0 {
		t.Errorf("the last step is judged %+v", last)
	}
}

// TestARefusalIsFollowedByARest lets the kernel refuse each write.
func TestARefusalIsFollowedByARest(t *testing.T) {
	w := newWorld(t, 50, map[node.WorkloadID]*batch{"job": {cold: 500 * mib, errno: 1}})
	w.seconds(3600)
	if n := len(w.asked["job"]); n > 10 || w.st.Work["job"].Last.Outcome != Failed {
		t.Errorf("%d orders in an hour, and the last is judged %+v", n, w.st.Work["job"].Last)
	}
}

// TestAWorkloadThatIsGoneIsForgotten removes a workload while its order runs, and then
// has another one with its name.
func TestAWorkloadThatIsGoneIsForgotten(t *testing.T) {
	b := &batch{cold: 500 * mib}
	w := newWorld(t, 50, map[node.WorkloadID]*batch{"job": b})
	w.seconds(30)
	step := w.st.Work["job"].Step
	delete(w.work, "job")
	w.seconds(1)
	if len(w.st.Work) > 0 {
		t.Errorf("kept %+v", w.st.Work)
	}
	w.work["job"] = &batch{cold: 500 * mib}
	w.seconds(1)
	if got := w.st.Work["job"].Step; got != leastStep || step == leastStep {
		t.Errorf("the first step of another workload is %v", got)
	}
	// The counters of a workload begin again if its cgroup was made again.
	w.seconds(30)
	for w.st.Work["job"].Asked == 0 {
		w.seconds(1)
	}
	was := w.st.Work["job"].Step
	w.st.Work["job"].Then.Refaults += 1 << 30
	for w.st.Work["job"].AskedAt.IsZero() || w.st.Work["job"].Step == was {
		w.seconds(1)
	}
	if got := w.st.Work["job"].Step; got != leastStep {
		t.Errorf("after a restart of the counters the step is %v", got)
	}
}

// TestAnOrderThatNoOneCarriesOutIsForgotten has an agent that observes.
func TestAnOrderThatNoOneCarriesOutIsForgotten(t *testing.T) {
	s, c := oneJob()
	st, orders := State{}, 0
	for range 120 {
		s.At = s.At.Add(time.Second)
		s.Workloads[1].Usage.SlowAt = s.At
		st = Decide(c, st, s)
		orders += len(st.Orders())
	}
	if orders < 3 || orders > 5 || st.Work["job"].Step != leastStep {
		t.Errorf("%d orders in two minutes, and the step is %v", orders, st.Work["job"].Step)
	}
}

// TestManyWorkloadsShareOneRate has more work than the rate allows for.
func TestManyWorkloadsShareOneRate(t *testing.T) {
	work := map[node.WorkloadID]*batch{}
	for i := range 40 {
		work[node.WorkloadID(fmt.Sprintf("job-%02d", i))] = &batch{cold: 1 << 40}
	}
	w := newWorld(t, 50, work)
	w.total = 1 << 50
	w.s.MemoryTotal = node.Some(w.total)
	w.seconds(300)
	var all, least unit.Bytes = 0, unit.MaxBytes
	for id := range work {
		all, least = all+w.sum(id), min(least, w.sum(id))
	}
	if most := 305 * mostPerSecond; all > most || all < most/2 {
		t.Errorf("asked for %v in 300 s, want up to %v", all, most)
	}
	if least < all/40/4 {
		t.Errorf("one of 40 was asked for %v of %v", least, all)
	}
}

// TestReclaimEndsWithTheNeed has more cold cache than the node needs.
func TestReclaimEndsWithTheNeed(t *testing.T) {
	w := newWorld(t, 5, map[node.WorkloadID]*batch{"a": {cold: 2000 * mib}, "b": {cold: 2000 * mib}})
	w.seconds(600)
	want := w.total.Percent(5)
	if w.free < want-leastStep || w.free > want {
		t.Errorf("%v are free, want %v", w.free, want)
	}
	if h := w.st.Work["a"].Hold; h != Enough {
		t.Errorf("the reason is %q", h)
	}
}

// TestReclaimKeepsItsPromises runs random work, and checks in each tick that no order goes
// below the protection of its workload, and that a decision depends on nothing but its
// input and the JSON of the state.
func TestReclaimKeepsItsPromises(t *testing.T) {
	for seed := range uint64(40) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		work := map[node.WorkloadID]*batch{}
		for i := range 1 + rnd.IntN(5) {
			size := func() unit.Bytes { return unit.Bytes(rnd.IntN(300)) * mib }
			work[node.WorkloadID(fmt.Sprint("job-", i))] = &batch{
				cold: size(), hot: size(), fixed: size(), protected: size(), asleep: rnd.IntN(3) == 0, blocked: time.Duration(rnd.IntN(9)) * time.Second,
			}
		}
		w := newWorld(t, unit.Percent(1+rnd.IntN(50)), work)
		for range 400 {
			before := w.st
			w.seconds(1)
			data, err := json.Marshal(before)
			var again State
			if err == nil {
				err = json.Unmarshal(data, &again)
			}
			if err != nil {
				t.Fatal(err)
			}
			if a, b := text(t, Decide(w.c, again, w.s)), text(t, w.st); a != b {
				t.Fatalf("seed %d: the decision from the record is\n%s, want\n%s", seed, a, b)
			}
			for _, o := range w.st.Orders() {
				b := work[o.Workload]
				if now := b.fixed + b.cold + b.hot - b.missing; now-o.Bytes < b.protected {
					t.Fatalf("seed %d: %v of %v go, and %v are protected", seed, o.Bytes, now, b.protected)
				}
			}
		}
	}
}

func text(t *testing.T, st State) string {
	t.Helper()
	data, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
