package plan

import (
	"fmt"
	"slices"
)

// An Owner is who asks for the value of a knob: a policy, or a part of Tenon
// that writes when no policy does. Its text form stands in captures, in the
// audit log and in labels of metrics. It is a number, so that a name that is
// none of these does not compile. The zero Owner has no name.
type Owner uint8

// The owners.
const (
	OwnerCPUQOS      Owner = iota + 1 // weights of the classes
	OwnerMechanism                    // the isolation mechanism of the CPU
	OwnerOrders                       // the orders of the BE scheduler
	OwnerSuppress                     // quota or CPUs of best-effort work
	OwnerLimit                        // CPU limits of workloads, and burst above them
	OwnerPin                          // the CPUs of workloads that have some to themselves
	OwnerMemory                       // protection and limits of memory
	OwnerCache                        // caches and memory bandwidth
	OwnerIO                           // block I/O
	OwnerEvict                        // the end of best-effort work
	OwnerPolicy                       // what no policy asks for any more
	OwnerRestore                      // a restore of everything
	OwnerWatchdog                     // the watchdog, when the agent is gone
	OwnerConformance                  // a fact of the conformance suite
)

// ownerNames are the text forms, by number.
var ownerNames = [...]string{
	"", "cpuqos", "ladder", "isolation", "suppress", "limit", "pin", "memory", "cache", "io", "evict",
	"policy", "restore", "watchdog", "conformance",
}

// String prints the text form: "suppress".
func (o Owner) String() string {
	if int(o) >= len(ownerNames) {
		return fmt.Sprintf("owner %d", uint8(o))
	}
	return ownerNames[o]
}

// ParseOwner returns the owner of a text form.
func ParseOwner(text string) (Owner, error) {
	if i := slices.Index(ownerNames[:], text); i >= 0 {
		return Owner(i), nil
	}
	return 0, fmt.Errorf("unknown owner %q: want one of %q", text, ownerNames[1:])
}

// MarshalText returns the text form.
func (o Owner) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText sets o to the owner of a text form.
func (o *Owner) UnmarshalText(text []byte) error {
	var err error
	*o, err = ParseOwner(string(text))
	return err
}
