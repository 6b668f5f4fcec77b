package plan

import (
	"fmt"
	"slices"
)

// An Owner is the policy that wants a value for a knob, or another part of
// Tenon that writes the knob. Its text form appears in captures, in the audit
// log and in metric labels. The type is a number, so that a misspelt name does
// not compile. The zero Owner has no name.
type Owner uint8

// The values of Owner.
const (
	OwnerCPUQOS      Owner = iota + 1 // weights of the classes
	OwnerMechanism                    // the isolation mechanism of the CPU
	OwnerOrders                       // the orders of the BE scheduler
	OwnerSuppress                     // quota or CPUs of best-effort work
	OwnerLimit                        // CPU limits of workloads, and CPU burst
	OwnerPin                          // exclusive CPUs of workloads
	OwnerMemory                       // protection and limits of memory
	OwnerCache                        // caches and memory bandwidth
	OwnerIO                           // block I/O
	OwnerEvict                        // eviction of BE work
	OwnerPolicy                       // knobs that no policy wants any more
	OwnerRestore                      // tenon restore
	OwnerWatchdog                     // the watchdog, after the lease expired
	OwnerConformance                  // the conformance suite
	OwnerSeat                         // CPUs of best-effort work with a CPU limit
)

// ownerNames holds the text form of each owner.
var ownerNames = [...]string{
	"", "cpuqos", "mechanism", "isolation", "suppress", "limit", "pin", "memory", "cache", "io", "evict",
	"policy", "restore", "watchdog", "conformance", "seat",
}

// String prints the text form: "suppress".
func (o Owner) String() string {
	if int(o) >= len(ownerNames) {
		return fmt.Sprintf("owner %d", uint8(o))
	}
	return ownerNames[o]
}

// ParseOwner returns the owner with the given text form.
func ParseOwner(text string) (Owner, error) {
	if i := slices.Index(ownerNames[:], text); i >= 0 {
		return Owner(i), nil
	}
	return 0, fmt.Errorf("unknown owner %q: want one of %q", text, ownerNames[1:])
}

// MarshalText returns the text form.
func (o Owner) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText sets o to the owner with the given text form.
func (o *Owner) UnmarshalText(text []byte) error {
	var err error
	*o, err = ParseOwner(string(text))
	return err
}
