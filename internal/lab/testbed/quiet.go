package testbed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

const (
	// quietWatch is the time for which the lab watches the machine before the
	// experiment.
	quietWatch = 500 * time.Millisecond
	// quietMost is the largest busy share with which a set of CPUs counts as
	// quiet.
	quietMost = 0.1
)

// Watch measures how busy the CPUs are with other work before the experiment.
// It returns a caveat for each set of CPUs that is not quiet. A busy machine is
// no error, because a user may want to test Tenon on one.
func (s *Site) Watch(ctx context.Context) ([]string, error) {
	before, err := s.FS.Stat()
	if err != nil {
		return nil, fmt.Errorf("look whether the machine is quiet: %w", err)
	}
	begun := time.Now()
	if err := Pause(ctx, quietWatch); err != nil {
		return nil, err
	}
	after, err := s.FS.Stat()
	if err != nil {
		return nil, fmt.Errorf("look whether the machine is quiet: %w", err)
	}
	elapsed := time.Since(begun)
	var caveats []string
	for _, part := range []struct {
		name string
		cpus unit.CPUSet
	}{{"tested", s.Place.Tested}, {"client's", s.Place.Client.Union(s.Place.Lab)}} {
		idle := time.Duration(0)
		for cpu := range part.cpus.All() {
			x, known := before.PerCPU[cpu]
			y, still := after.PerCPU[cpu]
			if !known || !still {
				return nil, fmt.Errorf("look whether the machine is quiet: /proc/stat has no times of CPU %d: %w", cpu, errors.Join(before.Unread.Err("/proc/stat"), after.Unread.Err("/proc/stat")))
			}
			idle += y.Idle + y.IOWait - x.Idle - x.IOWait
		}
		busy := 1 - idle.Seconds()/elapsed.Seconds()/float64(part.cpus.Len())
		if busy > quietMost {
			caveats = append(caveats, fmt.Sprintf("the machine was not quiet: other work kept the %s CPUs %v busy for %.0f %% of the time before the experiment",
				part.name, part.cpus, 100*busy))
		}
	}
	return caveats, nil
}

// Caveats returns notes about how the CPUs are divided, for the reader of the
// report.
func (s *Site) Caveats() []string {
	if s.Given.NoClient {
		return []string{"the service makes its own load, so that there is no client; the lab reads its counters on the tested CPUs"}
	}
	list := []string{"the client runs on the same machine, on CPUs of its own, over the loopback device: no network card, no network"}
	if s.Place.SharesCore(s.Topology) {
		list = append(list, "client and tested CPUs share a core: the client's work slows the service down, alike in all modes")
	}
	return list
}
