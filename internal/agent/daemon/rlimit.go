// This file makes sure that the resource limits of this process let the agent
// work: getrlimit(2).

package daemon

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// A limitNeed is the least value of a limit with which the agent works.
type limitNeed struct {
	resource int
	name     string
	least    uint64
	// why says what the agent needs the limit for.
	why string
}

// limitNeeds lists the limits that an agent can run out of without an end: it would
// live, and do nothing.
var limitNeeds = []limitNeed{
	// A host keeps five eighths of the descriptors for cgroups (host.Open), and
	// the connections of clients take at most 96.
	{unix.RLIMIT_NOFILE, "open files (RLIMIT_NOFILE)", 512, "files of cgroups, the journal and connections"},
	// The flight recorder has the longest files.
	{unix.RLIMIT_FSIZE, "the size of files (RLIMIT_FSIZE)", 64 << 20, "the journal, the lease and the flight recorder, in bytes"},
}

// ensureLimits raises the limits that are too small. It returns an error that names each
// limit that cannot be raised.
func ensureLimits() error {
	var errs []error
	for _, n := range limitNeeds {
		errs = append(errs, n.ensure())
	}
	return errors.Join(errs...)
}

func (n limitNeed) ensure() error {
	var limit unix.Rlimit
	if err := unix.Getrlimit(n.resource, &limit); err != nil {
		return fmt.Errorf("read the limit of %s: %w", n.name, err)
	}
	if limit.Cur >= n.least {
		return nil
	}
	had := limit.Cur
	// Only a process with CAP_SYS_RESOURCE may raise the hard limit.
	limit.Cur, limit.Max = n.least, max(limit.Max, n.least)
	if err := unix.Setrlimit(n.resource, &limit); err != nil {
		return fmt.Errorf("raise the limit of %s from %d to %d: %w: the agent needs it for %s", n.name, had, n.least, err, n.why)
	}
	return nil
}
