package history

import (
	"cmp"
	"math/bits"
	"slices"
	"time"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// peakOver is the time over which the greatest use of a minute is a mean.
	peakOver = 5 * time.Second
	// A minute is measured from its first tick to the first one of the next minute. If
	// that is too short or too long, the machine slept or the clock was set, and the
	// minute is a hole.
	shortest, longest = 30 * time.Second, 90 * time.Second
	// A pair needs leastWait in a minute, and a waiter has mostPairs pairs.
	leastWait = 10 * time.Millisecond
	mostPairs = 8
)

// A Meter makes minutes of the snapshots of a node. Counters that a snapshot does
// not have are Absent.
type Meter struct {
	minute int64 // since 1970; 0: none
	began  time.Time
	node   counted
	work   map[node.WorkloadID]*counted
	waits  map[[2]node.WorkloadID]time.Duration
	room   promise.Room // the least one
}

// counted is the state of a row: its counters at the first tick of the minute, and
// the greatest values since then.
type counted struct {
	class  node.Class
	first  node.Usage
	mark   node.Maybe[time.Duration] // the CPU time at marked
	marked time.Time
	peak   int64 // of CPU
	memory int64 // the greatest working set, in MiB
	total  int64 // the greatest Memory, in MiB
}

// Observe adds a snapshot, which was taken at a time of the wall clock, and the room
// for batch work. With the first snapshot of a minute it returns the minute before.
func (m *Meter) Observe(at time.Time, s *node.Snapshot, room promise.Room) (done Minute, complete bool) {
	minute := at.Unix() / 60
	if minute != m.minute {
		if took := s.At.Sub(m.began); m.minute != 0 && took >= shortest && took <= longest && minute == m.minute+1 {
			m.see(s, room)
			done, complete = m.end(s, took), true
		}
		*m = Meter{minute: minute, began: s.At, node: begin(s.Usage, s.At), room: room,
			work: make(map[node.WorkloadID]*counted, len(s.Workloads)), waits: make(map[[2]node.WorkloadID]time.Duration, len(s.Waits))}
		for i := range s.Workloads {
			c := begin(s.Workloads[i].Usage, s.At)
			c.class = s.Workloads[i].Class
			m.work[s.Workloads[i].ID] = &c
		}
		for _, w := range s.Waits {
			m.waits[[2]node.WorkloadID{w.Waiter, w.Runner}] = w.Time
		}
	}
	m.see(s, room)
	return done, complete
}

func begin(u node.Usage, at time.Time) counted {
	return counted{first: u, mark: u.CPU, marked: at, peak: Absent, memory: Absent, total: Absent}
}

// see adds what counts by its greatest or least value in the minute.
func (m *Meter) see(s *node.Snapshot, room promise.Room) {
	m.node.see(s.Usage, s.At)
	for i := range s.Workloads {
		if c := m.work[s.Workloads[i].ID]; c != nil {
			c.see(s.Workloads[i].Usage, s.At)
		}
	}
	m.room = m.room.Lower(room)
}

func (c *counted) see(u node.Usage, at time.Time) {
	if took := at.Sub(c.marked); took >= peakOver {
		c.peak = max(c.peak, rate(c.mark, u.CPU, took))
		c.mark, c.marked = u.CPU, at
	}
	c.memory, c.total = max(c.memory, mib(u.WorkingSet)), max(c.total, mib(u.Memory))
}

// end returns the minute that began took ago.
func (m *Meter) end(s *node.Snapshot, took time.Duration) Minute {
	out := Minute{At: m.minute}
	first, now := m.node.first, s.Usage
	set := setter(Node)
	set("cpu_mcpu", rate(first.CPU, now.CPU, took))
	set("cpu_max_mcpu", m.node.peak)
	set("steal_mcpu", rate(first.Steal, now.Steal, took))
	set("memory_mib", m.node.total)
	set("working_set_mib", m.node.memory)
	set("cpu_some_ms", millis(first.Pressure.CPU.Some, now.Pressure.CPU.Some))
	set("memory_some_ms", millis(first.Pressure.Memory.Some, now.Pressure.Memory.Some))
	set("memory_full_ms", millis(first.Pressure.Memory.Full, now.Pressure.Memory.Full))
	set("io_some_ms", millis(first.Pressure.IO.Some, now.Pressure.IO.Some))
	set("io_full_ms", millis(first.Pressure.IO.Full, now.Pressure.IO.Full))
	set("room_cpu_mcpu", number(m.room.CPU))
	out.Rows[Node] = []Row{{"", set("room_memory_mib", mib(m.room.Memory))}}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		c := m.work[w.ID]
		if c == nil {
			continue // it came within the minute
		}
		first, now := c.first, w.Usage
		set := setter(Work)
		set("class", int64(slices.Index(node.Classes[:], w.Class)))
		set("cpu_mcpu", rate(first.CPU, now.CPU, took))
		set("cpu_max_mcpu", c.peak)
		set("request_mcpu", number(w.CPURequest))
		set("limit_mcpu", number(w.CPULimit))
		set("working_set_mib", c.memory)
		set("throttled_ms", millis(first.Throttled, now.Throttled))
		set("wait_ms", millis(first.Delay.Sum, now.Delay.Sum))
		set("wait_p99_bucket", bucket(now.Delay.Since(first.Delay).Quantile(0.99)))
		set("refaults", grown(number(first.Refaults), number(now.Refaults)))
		out.Rows[Work] = append(out.Rows[Work], Row{string(w.ID), set("memory_stall_ms", millis(first.Pressure.Memory.Some, now.Pressure.Memory.Some))})
	}
	out.Rows[Pair] = m.pairs(s.Waits)
	return out
}

// pairs returns the pairs of which one waited longest for the other. The waits of a
// snapshot are totals, and it names only some runners of a waiter. The total of a
// runner that loses its name goes into that of the rest of its class, and back when it
// is named again. Neither is a wait of this minute.
func (m *Meter) pairs(waits []node.Wait) []Row {
	type pair = [2]node.WorkloadID
	now := make(map[pair]time.Duration, len(waits))
	for _, w := range waits {
		now[pair{w.Waiter, w.Runner}] = w.Time
	}
	// moved has what came into the total of a rest from a runner that was named.
	moved := map[pair]time.Duration{}
	for p, first := range m.waits {
		if c := m.work[p[1]]; c != nil {
			if t, named := now[p]; !named || t < first { // it has ended, or begun anew
				moved[pair{p[0], node.RestOf(c.class)}] += first
			}
		}
	}
	// unknown has the pairs whose total at the start of the minute is not known.
	unknown := map[pair]bool{}
	for p := range now {
		c := m.work[p[1]]
		if _, was := m.waits[p]; was || c == nil {
			continue
		}
		rest := pair{p[0], node.RestOf(c.class)}
		if _, had := m.waits[rest]; had { // it may have counted there
			unknown[p], unknown[rest] = true, true
		}
	}
	byWaiter := map[node.WorkloadID][]node.Wait{}
	for _, w := range waits {
		p := pair{w.Waiter, w.Runner}
		first := m.waits[p] + moved[p]
		if m.work[w.Runner] != nil && w.Time < first {
			first = 0 // its counter began anew
		}
		if w.Time -= first; w.Time >= leastWait && !unknown[p] {
			byWaiter[w.Waiter] = append(byWaiter[w.Waiter], w)
		}
	}
	var rows []Row
	for _, all := range byWaiter {
		slices.SortFunc(all, func(a, b node.Wait) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.Runner, b.Runner)) })
		for _, w := range all[:min(len(all), mostPairs)] {
			rows = append(rows, Row{PairName(string(w.Waiter), string(w.Runner)), []int64{w.Time.Milliseconds()}})
		}
	}
	return rows
}

// setter returns a function that sets a column of a row, and returns the values
// of the row.
func setter(k Kind) func(column string, v int64) []int64 {
	values := slices.Repeat([]int64{Absent}, len(Columns[k]))
	return func(column string, v int64) []int64 {
		values[Column(k, column)] = v
		return values
	}
}

// rate returns the growth of a CPU time in thousandths of a CPU.
func rate(first, now node.Maybe[time.Duration], took time.Duration) int64 {
	a, known := first.Value()
	b, has := now.Value()
	if !known || !has || b < a || took < time.Millisecond {
		return Absent
	}
	return int64((b - a) / (took / 1000))
}

func millis(first, now node.Maybe[time.Duration]) int64 {
	a, known := first.Value()
	b, has := now.Value()
	if !known || !has || b < a {
		return Absent
	}
	return (b - a).Milliseconds()
}

// grown returns the growth of a counter, unless it began again.
func grown(first, now int64) int64 {
	if first == Absent || now < first {
		return Absent
	}
	return now - first
}

func number[T ~int64](v node.Maybe[T]) int64 { return int64(v.Or(Absent)) }

func mib(v node.Maybe[unit.Bytes]) int64 {
	if b, known := v.Value(); known {
		return int64(b >> 20)
	}
	return Absent
}

// bucket returns the bucket of node.RunQueueDelay.Counts that has this upper bound.
func bucket(bound node.Maybe[time.Duration]) int64 {
	d, known := bound.Value()
	if !known {
		return Absent
	}
	return int64(bits.Len64(uint64(d/node.DelayBound(0))) - 1)
}
