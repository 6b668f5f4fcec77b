// Package wrk has the arguments of wrk (version 4), the closed-loop client of the
// published experiment, and parses its output.
package wrk

import (
	"fmt"
	"strconv"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// The published experiment runs wrk -t6 -c54: 9 connections per thread.
const (
	maxThreads           = 6
	connectionsPerThread = 9
)

// A Config is a call of wrk. URL and Duration are required.
type Config struct {
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
func (c Config) Args() []string {
	threads := c.Threads
	if threads == 0 {
		threads = maxThreads
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
