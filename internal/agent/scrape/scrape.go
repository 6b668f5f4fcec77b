// Package scrape reads how long the requests of services take: from the Prometheus
// histograms that the services show, or from a probe in the kernel that watches
// their sockets. It also takes what the manager has read from a Prometheus server. It
// connects to the address of the service alone, and believes nothing that it gets.
package scrape

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"tenon.sh/tenon/internal/model/node"
)

const (
	// every is the time between two readings of a service.
	every = 5 * time.Second
	// maxTargets is the number of services of a node that are read.
	maxTargets = 50
)

// A Target is a service whose requests are read.
type Target struct {
	Workload node.WorkloadID
	Address  string // an IP address, for node.SourceMetrics
	Cgroup   uint64 // the inode number of its cgroup, for node.SourceSocket
	Want     node.RequestObjective
	// Trouble is the reason why it must not be read. It is empty if it may.
	Trouble node.SourceTrouble
}

// Readers has the readings of all services of a node. It reads those with the source
// metrics itself, each in a goroutine of its own. The zero Readers reads nothing yet.
type Readers struct {
	// CgroupVersion is the version of the hierarchy with the cgroups of the targets.
	CgroupVersion int
	// Log gets the errors of the probe in the kernel.
	Log *slog.Logger

	mu      sync.Mutex
	readers map[node.WorkloadID]*reader
	running sync.WaitGroup
	every   time.Duration // 0: the usual time
	probe   probe
}

// A source reads the requests of one service.
type source interface {
	// read reads them once. The time of the result is not set.
	read(ctx context.Context) node.Requests
	leave()
}

// A reader reads one service.
type reader struct {
	target Target
	stop   context.CancelFunc

	mu   sync.Mutex
	last node.Requests
	// read is the time of the last reading on the clock of the process. last.At is
	// zero until Fill has converted it.
	read time.Time
	// answer is the time of the last reading from Prometheus, on its clock.
	answer time.Time
}

// Follow reads these services from now on, and no others. A service whose target
// is as before keeps its readings.
func (r *Readers) Follow(targets []Target) {
	r.mu.Lock()
	defer r.mu.Unlock()
	targets = slices.SortedFunc(slices.Values(targets), func(a, b Target) int { return cmp.Compare(a.Workload, b.Workload) })
	next := make(map[node.WorkloadID]*reader, len(targets))
	read := 0
	for _, t := range targets {
		if t.Trouble == "" && t.Address == "" && t.Want.Source == node.SourceMetrics {
			t.Trouble = node.TroubleNoAddress
		}
		if t.Trouble == "" {
			if read++; read > maxTargets {
				t.Trouble = node.TroubleTooMany
			}
		}
		if old := r.readers[t.Workload]; old != nil && old.target == t {
			next[t.Workload] = old
			continue
		}
		next[t.Workload] = r.begin(t)
	}
	for id, old := range r.readers {
		if next[id] != old {
			old.stop()
		}
	}
	r.readers = next
}

// begin starts to read a service.
func (r *Readers) begin(t Target) *reader {
	ctx, stop := context.WithCancel(context.Background())
	x := &reader{target: t, stop: stop}
	switch {
	case t.Trouble != "":
		x.last.Trouble = t.Trouble
		return x
	case t.Want.Source == node.SourceQuery:
		x.last.Trouble = node.TroubleNoAnswer
		return x
	}
	pause := cmp.Or(r.every, every)
	r.running.Go(func() {
		s := r.sourceOf(t)
		defer s.leave()
		for ctx.Err() == nil {
			x.take(s.read(ctx), time.Now())
			select {
			case <-ctx.Done():
			case <-time.After(pause*9/10 + rand.N(pause/5)):
			}
		}
	})
	return x
}

// sourceOf returns the source of a service.
func (r *Readers) sourceOf(t Target) source {
	if t.Want.Source == node.SourceSocket {
		return &socket{target: t, readers: r}
	}
	return newClient(t)
}

// take keeps a reading of a time, or adds the trouble with it to the last one.
func (x *reader) take(got node.Requests, read time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if got.Trouble != "" {
		x.last.Trouble = got.Trouble
		return
	}
	x.last, x.read = got, read
}

// Fill adds the last readings to a snapshot.
func (r *Readers) Fill(s *node.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.readers) == 0 {
		return
	}
	for i := range s.Workloads {
		w := &s.Workloads[i]
		if x := r.readers[w.ID]; x != nil && x.target.Want == w.Objective.Requests {
			w.Usage.Requests = x.at(s.At)
		}
	}
}

// at returns the last reading on the clock of a snapshot that was taken at a time.
func (x *reader) at(now time.Time) node.Requests {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last.At.IsZero() && !x.read.IsZero() {
		x.last.At = now.Add(-time.Since(x.read))
	}
	return x.last
}

// Close ends all readings.
func (r *Readers) Close() {
	r.mu.Lock()
	for _, x := range r.readers {
		x.stop()
	}
	r.readers = nil
	r.mu.Unlock()
	r.running.Wait()
}
