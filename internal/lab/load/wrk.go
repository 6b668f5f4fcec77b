package load

import (
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/model/unit"
)

// The published experiment runs wrk -t6 -c54: 9 connections per thread.
const (
	maxWrkThreads        = 6
	connectionsPerThread = 9
)

// WrkConfig is a call of wrk (version 4), the closed-loop client of the
// published experiment. URL and Duration are required.
type WrkConfig struct {
	URL      string
	Duration time.Duration // rounded up to whole seconds, because wrk accepts only those
	// CPUs is the set of CPUs on which wrk may run. An empty set means the CPUs
	// of the caller.
	CPUs unit.CPUSet
	// Threads is the option -t. 0 means 6, as in the published experiment, but
	// at most one per CPU.
	Threads int
	// Connections is the option -c. 0 means 9 per thread, as in the published
	// experiment.
	Connections int
}

// Args returns the arguments for wrk, such as -t6 -c54 -d60s --latency URL.
func (c WrkConfig) Args() []string {
	threads := c.Threads
	if threads == 0 {
		threads = maxWrkThreads
		if n := c.CPUs.Len(); n > 0 {
			threads = min(threads, n)
		}
	}
	connections := c.Connections
	if connections == 0 {
		connections = connectionsPerThread * threads
	}
	seconds := (c.Duration + time.Second - 1) / time.Second
	return []string{"-t" + strconv.Itoa(threads), "-c" + strconv.Itoa(connections), fmt.Sprintf("-d%ds", seconds), "--latency", c.URL}
}

// pinThread restricts the calling thread to a set of CPUs. If the set is empty, it changes nothing.
func pinThread(cpus unit.CPUSet) error {
	if cpus.Empty() {
		return nil
	}
	var set unix.CPUSet
	for cpu := range cpus.All() {
		set.Set(int(cpu))
	}
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("pin a thread to CPUs %v: %w", cpus, err)
	}
	return nil
}
