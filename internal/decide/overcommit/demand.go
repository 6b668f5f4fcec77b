package overcommit

import (
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// sampleEvery is the minimum time between two samples of usage. If an event starts
	// a tick, the time since the last tick can be too short to compute a rate.
	// sampleEvery is below one second because the time between periodic ticks varies.
	sampleEvery = 900 * time.Millisecond
	// shortWindow is the length of the short window. The usage in the short
	// window can only lower the offer.
	shortWindow = 5 * time.Second
	// lastingSamples is the number of samples after which a rise of the usage counts
	// in full. A rise in one sample counts by the mean of the short window, so that
	// a peak of a second does not lower the offer for as long as a decision about an
	// increase takes (Config.Look).
	lastingSamples = 2
	// spans is the number of parts of each of the two windows.
	spans = 5
)

// demand is the usage of the node and its workloads, as sums over the parts of a
// short and a long window. The newest part comes first. The units are milliseconds of
// time, milliseconds of CPU time, and KiB × s of memory. All are whole numbers.
type demand struct {
	Began  bool          `json:"began,omitempty"`     // the counters were read at least once
	Waited time.Duration `json:"waited_ns,omitempty"` // time since the last sample
	Short  parts         `json:"short_ms,omitzero"`   // length of each part
	Long   parts         `json:"long_ms,omitzero"`
	// Busy is the sum of the busy counters of the CPUs. Counted is the number
	// of CPUs in that sum.
	Busy    int64     `json:"busy_ms,omitempty"`
	Counted int       `json:"counted,omitempty"`
	System  account   `json:"system,omitzero"`
	Work    []account `json:"work,omitempty"` // in the order of the snapshot
	Peaks   Peaks     `json:"peaks,omitzero"`
}

// An account is the usage of one workload. For BE work it holds only the
// counter, because the usage of BE does not reduce the offer.
type account struct {
	ID node.WorkloadID `json:"id,omitempty"`
	// Counter is the last reading, in milliseconds; negative: there is none.
	Counter int64  `json:"counter,omitempty"`
	CPU     series `json:"cpu,omitzero"`
	Memory  series `json:"memory,omitzero"`
	Peak    peak   `json:"peak,omitzero"`
}

// parts holds one amount for each part of a window, newest first.
type parts [spans]int64

// A series is the usage of one resource in each part. Seen is the time for
// which the usage was counted, in milliseconds.
type series struct {
	Seen  int64 `json:"seen_ms,omitempty"`
	Short parts `json:"short,omitzero"`
	Long  parts `json:"long,omitzero"`
}

// observe adds the usage since the last sample. It returns the time since that
// sample, or 0 if it is too early for a new sample.
func (d demand) observe(c Config, nodeCPUs facts.NodeCPUs, elapsed time.Duration, s node.Snapshot) (demand, time.Duration) {
	next := d
	next.Waited += max(elapsed, 0)
	if !d.Began {
		next.Waited = 0
		next.System.Peak = d.Peaks.peakOf("", c.Peak) // it is known where the State has only peaks
	} else if next.Waited < sampleEvery {
		return next, 0
	}
	sampled := next.Waited
	next.Began, next.Waited = true, 0
	p := part{lasted: sampled.Milliseconds(), before: d.Short}
	if sampled > 0 {
		p.pushed = next.extend(p.lasted, c.Window)
	}
	next.Work = make([]account, len(s.Workloads))
	at := d.index()
	var spent int64
	var charged unit.Bytes
	for i := range s.Workloads {
		w, a := &s.Workloads[i], &next.Work[i]
		if had := at(i, w.ID); had >= 0 {
			*a = d.Work[had]
		} else {
			*a = account{ID: w.ID, Counter: -1, Peak: d.Peaks.peakOf(w.ID, c.Peak)}
		}
		used, rated := a.read(w.Usage.CPU)
		spent += used
		charged += memoryUsed(w.Usage, false).Or(0)
		if usesBatch(w) {
			*a = account{ID: a.ID, Counter: a.Counter}
		} else {
			a.CPU.add(used, rated, p)
			held, known := memoryUsed(w.Usage, c.WithPageCache).Value()
			a.Memory.add(int64(held>>10)*p.lasted/1000, known, p)
		}
	}
	next.system(nodeCPUs, s, spent, charged, p)
	next.predict(c.Peak, sampled, s.Workloads)
	return next, sampled
}

// memoryUsed returns the memory that counts as used: the working set, or all
// memory if page cache counts or the working set is unknown.
func memoryUsed(u node.Usage, withPageCache bool) node.Maybe[unit.Bytes] {
	if withPageCache || !u.WorkingSet.Known() {
		return u.Memory
	}
	return u.WorkingSet
}

// A part describes the newest part of both windows.
type part struct {
	lasted int64
	before parts // lengths of the earlier parts of the short window
	pushed bool  // the long window also begins a new part
}

// extend begins a new part of the short window. It reports whether a new part
// of the long window also began.
func (d *demand) extend(lasted int64, window time.Duration) bool {
	d.Short.push()
	d.Short[0] = lasted
	push := d.Long[0]*spans >= window.Milliseconds() || d.Long[0]+lasted > window.Milliseconds()
	if push {
		d.Long.push()
	}
	d.Long[0] += lasted
	d.Short.trim(shortWindow)
	d.Long.trim(window)
	return push
}

func (p *parts) push() {
	copy(p[1:], p[:spans-1])
	p[0] = 0
}

// trim drops the parts that are older than the window.
func (p *parts) trim(window time.Duration) {
	var back int64
	for i, lasted := range p {
		if back += lasted; i > 0 && back > window.Milliseconds() {
			p[i] = 0
		}
	}
}

// index returns a function that finds the index of a workload in d.Work, or
// returns -1. This function first tries a given index (place). The workload is
// there unless the list of workloads has changed.
func (d demand) index() func(place int, id node.WorkloadID) int {
	var all map[node.WorkloadID]int
	return func(place int, id node.WorkloadID) int {
		if place < len(d.Work) && d.Work[place].ID == id {
			return place
		}
		if all == nil {
			all = make(map[node.WorkloadID]int, len(d.Work))
			for i := range d.Work {
				all[d.Work[i].ID] = i
			}
		}
		if at, had := all[id]; had {
			return at
		}
		return -1
	}
}

// read returns the CPU time used since the last reading. If a reading is
// missing or the counter was reset, rated is false.
func (a *account) read(counter node.Maybe[time.Duration]) (spent int64, rated bool) {
	then := a.Counter
	a.Counter = -1
	if now, known := counter.Value(); known {
		a.Counter = now.Milliseconds()
	}
	if then < 0 || a.Counter < then {
		return 0, false
	}
	return a.Counter - then, true
}

// add adds an amount of CPU or memory usage to the newest part of both windows. If the
// usage was not counted in this part, add assumes the mean rate of the earlier parts.
func (u *series) add(sum int64, counted bool, p part) {
	if !counted {
		sum = mean(u.Short, p.before, u.Seen) * p.lasted / 1000
	}
	u.Short.push()
	if p.pushed {
		u.Long.push()
	}
	if counted || u.Seen > 0 {
		u.Short[0] = sum
		u.Long[0] += sum
		u.Seen += p.lasted
	}
}

// mean returns the usage per second, over the parts in which the usage was counted.
func mean(sums, lasted parts, seen int64) int64 {
	var sum, over int64
	for i := range sums {
		if lasted[i] > 0 {
			sum, over = sum+sums[i], over+lasted[i]
		}
	}
	if over = min(over, seen); over <= 0 {
		return 0
	}
	return (sum*1000 + over/2) / over
}

// lastSamples returns the time of the last samples, in whole seconds.
func (d demand) lastSamples() time.Duration {
	var over int64
	for i := range lastingSamples {
		over += d.Short[i]
	}
	return (time.Duration(over) * time.Millisecond).Round(time.Second)
}

// lasting returns the usage per second that has lasted over the last samples: the
// least of their rates.
func lasting(sums, lasted parts) int64 {
	var least int64
	for i := range lastingSamples {
		if lasted[i] == 0 {
			break
		}
		if rate := (sums[i]*1000 + lasted[i]/2) / lasted[i]; i == 0 || rate < least {
			least = rate
		}
	}
	return least
}

// system adds the usage of the node that belongs to no workload.
func (d *demand) system(nodeCPUs facts.NodeCPUs, s node.Snapshot, spent int64, charged unit.Bytes, p part) {
	then, were := d.Busy, d.Counted
	d.Busy, d.Counted = 0, 0
	var busy time.Duration
	for cpu := range nodeCPUs.Online(s).All() {
		if t, known := s.Busy[cpu]; known {
			busy += t
			d.Counted++
		}
	}
	d.Busy = busy.Milliseconds()
	// While a CPU is offline, its counter is missing from the sum.
	rated := d.Counted > 0 && d.Counted == were && d.Busy >= then
	d.System.CPU.add(max(d.Busy-then-spent, 0), rated, p)
	// The memory of the node is measured as for workloads. MemAvailable would
	// count page cache in their working sets as free.
	used, known := memoryUsed(s.Usage, false).Value()
	d.System.Memory.add(int64(max(used-charged, 0)>>10)*p.lasted/1000, known, p)
}
