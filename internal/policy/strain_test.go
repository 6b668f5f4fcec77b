package policy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/node"
)

// waiting is how a workload waited in a spell. In a story it is one of
//
//	web.waits=1000*100us,30*5ms    so many waits, each so long
//	web.turns=1000*600us           so many turns on a CPU, after waits of this mean
//	web.for=be:20ms,web:3ms        for whom it waited
//	web.waits=?                    nobody knows any more
type waiting struct {
	id     node.WorkloadID
	kind   string
	counts map[time.Duration]uint64
	whose  map[node.WorkloadID]time.Duration
	lost   bool
}

// testBuckets are as many as a histogram of the kernel's has.
const testBuckets = 29

func readWaiting(t *testing.T, w word) waiting {
	t.Helper()
	id, kind, _ := strings.Cut(w.key, ".")
	all := waiting{id: node.WorkloadID(id), kind: kind, lost: w.val == "?", counts: map[time.Duration]uint64{}, whose: map[node.WorkloadID]time.Duration{}}
	if all.lost {
		return all
	}
	for _, part := range strings.Split(w.val, ",") {
		first, length, _ := strings.Cut(part, map[string]string{"waits": "*", "turns": "*", "for": ":"}[kind])
		d := must(t, word{w.key, length}, time.ParseDuration)
		if kind == "for" {
			all.whose[node.WorkloadID(first)] = d
		} else {
			all.counts[d] = must(t, word{w.key, first}, func(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) })
		}
	}
	return all
}

func (n *scene) setObjective(t *testing.T, line string, f []string) {
	t.Helper()
	if len(f) != 2 {
		t.Fatalf("scenario line %q: want an id and a time", line)
	}
	want := node.Maybe[time.Duration]{}
	if f[1] != "-" {
		want = node.Some(must(t, word{f[0], f[1]}, time.ParseDuration))
	}
	for i, w := range n.snap.Workloads {
		if string(w.ID) == f[0] {
			n.snap.Workloads[i].Objective.RunQueueDelay = want
		}
	}
}

// wait adds waits to the counters.
func (n *scene) wait(all []waiting) {
	n.delay = maps.Clone(n.delay)
	if n.delay == nil {
		n.delay = map[node.WorkloadID]node.RunQueueDelay{}
	}
	n.snap.Waits = slices.Clone(n.snap.Waits)
	for _, w := range all {
		d := n.delay[w.id]
		sum, turns := d.Sum.Or(0), d.Turns.Or(0)
		for length, count := range w.counts {
			sum += length * time.Duration(count)
			turns += int64(count)
		}
		switch {
		case w.lost:
			delete(n.delay, w.id)
			continue
		case w.kind == "for":
			for runner, length := range w.whose {
				i := slices.IndexFunc(n.snap.Waits, func(x node.Wait) bool { return x.Waiter == w.id && x.Runner == runner })
				if i < 0 {
					i = len(n.snap.Waits)
					n.snap.Waits = append(n.snap.Waits, node.Wait{Waiter: w.id, Runner: runner})
				}
				n.snap.Waits[i].Time += length
			}
			continue
		case w.kind == "turns":
			d.Turns = node.Some(turns)
		default:
			counts := make([]uint64, testBuckets)
			copy(counts, d.Counts)
			for length, count := range w.counts {
				b := 0
				for b < testBuckets-1 && length >= node.DelayBound(b) {
					b++
				}
				counts[b] += count
			}
			d.Counts = counts
		}
		d.Sum = node.Some(sum)
		n.delay[w.id] = d
	}
}

func spreadOf(waits map[time.Duration]uint64) spread {
	n := newScene(machine(1, 1, 1, 1), 2)
	n.wait([]waiting{{id: "web", kind: "waits", counts: waits}})
	d, ok := since(node.RunQueueDelay{Counts: make([]uint64, testBuckets)}, n.delay["web"])
	if !ok {
		panic("the readings do not fit")
	}
	return d
}

// TestTheHistogramDoesNotFlatter: whenever more than 1 of 100 waits, and some
// for chance, is longer than wanted, the objective is missed, wherever in its
// bucket the wait lies; and never when all waits are shorter than half of it.
func TestTheHistogramDoesNotFlatter(t *testing.T) {
	for want := 10 * time.Microsecond; want < time.Second; want = want * 11 / 10 {
		longer := want + want/8
		for _, c := range []struct {
			waits  map[time.Duration]uint64
			missed bool
		}{
			{map[time.Duration]uint64{want / 4: 1000, longer: 13}, true},
			{map[time.Duration]uint64{want / 4: 1000, longer: 12}, false},
			{map[time.Duration]uint64{want/2 - 1: 100000}, false},
			{map[time.Duration]uint64{longer: 3}, true},
			{map[time.Duration]uint64{longer: 2}, false},
			{nil, false},
		} {
			d := spreadOf(c.waits)
			if got := d.missed(want); got != c.missed {
				t.Errorf("wants %v: waits %v are missed: %v", want, c.waits, got)
			}
			if c.missed && d.tail() <= want {
				t.Errorf("wants %v: waits %v miss it with a p99 of %v", want, c.waits, d.tail())
			}
		}
	}
	if got := spreadOf(map[time.Duration]uint64{100 * time.Hour: 3}); !got.missed(time.Hour) {
		t.Error("waits beyond the last bucket are short")
	}
}

// TestAMeanIsJudgedByItsTail: of a mean of 1 ms, 5 ms is what 99 of 100 waits
// may take.
func TestAMeanIsJudgedByItsTail(t *testing.T) {
	d := spread{waits: 1000, sum: time.Second}
	if d.missed(5*time.Millisecond) || !d.missed(5*time.Millisecond-1) {
		t.Errorf("a mean of 1 ms has a tail of %v", d.tail())
	}
	if few := (spread{waits: enoughWaits - 1, sum: time.Hour}); few.missed(1) {
		t.Error("a few waits make a mean")
	}
}

// TestCountersThatWentBackBeginAnew: a window is never made of readings that
// do not fit together.
func TestCountersThatWentBackBeginAnew(t *testing.T) {
	full := node.RunQueueDelay{Sum: node.Some(time.Second), Counts: []uint64{5, 5}}
	for name, now := range map[string]node.RunQueueDelay{
		"a sum that fell":    {Sum: node.Some(time.Millisecond), Counts: []uint64{6, 6}},
		"a count that fell":  {Sum: node.Some(time.Minute), Counts: []uint64{4, 9}},
		"no histogram":       {Sum: node.Some(time.Minute)},
		"more buckets":       {Sum: node.Some(time.Minute), Counts: []uint64{9, 9, 9}},
		"turns in its place": {Sum: node.Some(time.Minute), Turns: node.Some[int64](7)},
	} {
		if d, ok := since(full, now); ok {
			t.Errorf("%s makes a window: %+v", name, d)
		}
		f := fare{Since: time.Unix(1, 0), Delay: full}.observe(time.Unix(2, 0), node.Workload{Usage: node.Usage{Delay: now}}, 1, blamed{})
		if f.Missed || !f.Since.Equal(time.Unix(2, 0)) {
			t.Errorf("%s: the window began at %v", name, f.Since)
		}
	}
}

// TestWorstMissFirst: who waits longest for its objective is named first.
func TestWorstMissFirst(t *testing.T) {
	x := strain{Work: map[node.WorkloadID]fare{
		"a": {Missed: true, Percent: 150}, "b": {Missed: true, Percent: 900}, "c": {Percent: 9000}, "d": {Missed: true, Percent: 150},
	}}
	var got []node.WorkloadID
	for _, m := range x.missed() {
		got = append(got, m.Workload)
	}
	if want := fmt.Sprint([]node.WorkloadID{"b", "a", "d"}); fmt.Sprint(got) != want {
		t.Errorf("missed are %v, want %v", got, want)
	}
}

// TestGivingIsTakenBackInTime: what is given up comes back after the same time
// however many turns there are in it, and not in one leap after a pause.
func TestGivingIsTakenBackInTime(t *testing.T) {
	for _, every := range []time.Duration{20 * time.Millisecond, 330 * time.Millisecond, time.Second, 4 * time.Second} {
		g, at := giving{Permille: 1000, At: time.Unix(0, 0), Reason: "web"}, time.Unix(0, 0)
		for g.Permille > 0 {
			at = at.Add(every)
			g = g.follow(strain{}, at)
		}
		if took := at.Sub(time.Unix(0, 0)); took < 50*time.Second || took >= 50*time.Second+every {
			t.Errorf("with a turn each %v all came back after %v", every, took)
		}
	}
	g := giving{Permille: 1000, At: time.Unix(0, 0)}.follow(strain{}, time.Unix(3600, 0))
	if g.Permille != 900 {
		t.Errorf("after a pause of an hour %d ‰ are given up, want 900", g.Permille)
	}
	if again := g.follow(strain{}, time.Unix(3600, 0)); again.Permille != 900 {
		t.Errorf("and at the same moment %d ‰", again.Permille)
	}
}

// TestGivingOnlyEverNarrows: whatever is given up, best-effort work has no more
// than by the formula, no less than its least, and an objective that is missed
// for long leaves it the least.
func TestGivingOnlyEverNarrows(t *testing.T) {
	b := budget{capacity: 16000, least: 1600, may: 9000}
	g, at, last := giving{}, time.Unix(0, 0), b.may
	for turn := range 20 {
		at = at.Add(time.Second)
		g = g.follow(strain{Work: map[node.WorkloadID]fare{"web": {Missed: true, At: at, Reason: "web waits"}}}, at)
		now := b.less(g).may
		if now > last || now < b.least || (turn > 10 && now != b.least) {
			t.Fatalf("after %d s of waiting BE may use %v after %v", turn+1, now, last)
		}
		last = now
	}
	if below := (budget{least: 1600, may: 1600, reason: "least"}).less(g); below.may != 1600 || below.reason != "least" {
		t.Errorf("the least became %+v", below)
	}
}
