package node

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/model/unit"
)

// The knobs of isolation.
const (
	// FileIdentity is the mark of a cgroup on a vendor's kernel:
	// cpu.bvt_warp_ns, cpu.priority with cpu.identity, or cpu.qos_level.
	FileIdentity File = "identity"
	// FileScheduler is the scheduler of BE threads. The knob belongs to the
	// node, so its cgroup is the root.
	FileScheduler File = "scheduler"
	// FileSlice is the time slice of the threads in and below a cgroup. It is not part of a
	// mechanism. Tenon makes the slice long where it cannot make the cgroup idle.
	FileSlice File = "slice"
)

// Identity is the priority of a cgroup on a vendor's kernel. Cgroups with
// IdentityBE give way to all others. Cgroups with IdentityHigh go before all
// others. IdentityExpels also keeps BE off the siblings of the cgroup's CPUs.
// The numbers are those of cpu.bvt_warp_ns. If a kernel has fewer levels, Tenon
// uses the nearest one.
type Identity int

// The values of Identity.
const (
	IdentityBE     Identity = -1
	IdentityNone   Identity = 0
	IdentityHigh   Identity = 1
	IdentityExpels Identity = 2
)

func (v Identity) String() string { return strconv.Itoa(int(v)) }

func (v Identity) Round(Kernel) Value { return v }

func (v Identity) CompareWidth(o Value) int {
	return compareWith(o, func(w Identity) int { return cmp.Compare(v, w) })
}

func parseIdentity(text string) (Value, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < int(IdentityBE) || n > int(IdentityExpels) {
		return nil, fmt.Errorf("identity %q: want a number from %d to %d", text, IdentityBE, IdentityExpels)
	}
	return Identity(n), nil
}

// Scheduler describes the BE scheduler that Tenon has loaded. It is zero if none is
// loaded. When the process that loaded the scheduler ends, the kernel unloads it.
type Scheduler struct {
	Loaded bool
	// If Siblings is set, BE threads keep off a CPU while an LS thread runs on
	// its sibling, and for the time Hold afterwards.
	Siblings bool
	Hold     time.Duration
	// Headroom is the number of cores in each L3 cache that the scheduler keeps idle for LS
	// threads that wake up. SchedulerHeadroom lets the scheduler choose the number.
	Headroom int
	// Gentle is a comma-separated list of LS classes. BE may run on the
	// siblings of CPUs that run threads of these classes.
	Gentle string
}

// SchedulerHeadroom is the value of Headroom that lets the scheduler choose.
const SchedulerHeadroom = -1

// Expels reports whether BE threads stay off the siblings of CPUs that run class c.
func (v Scheduler) Expels(c Class) bool {
	return v.Loaded && v.Siblings && c.Sensitive() && !slices.Contains(strings.Split(v.Gentle, ","), string(c))
}

// String prints "none", or "loaded siblings hold 200µs headroom 1 gentle LS".
func (v Scheduler) String() string {
	if !v.Loaded {
		return "none"
	}
	s := "loaded"
	if v.Siblings {
		s += " siblings"
	}
	room := "auto"
	if v.Headroom != SchedulerHeadroom {
		room = strconv.Itoa(v.Headroom)
	}
	s += fmt.Sprintf(" hold %v headroom %s", v.Hold, room)
	if v.Gentle != "" {
		s += " gentle " + v.Gentle
	}
	return s
}

func (v Scheduler) Round(Kernel) Value { return v }

// CompareWidth returns a negative number if v is loaded and o is not.
func (v Scheduler) CompareWidth(o Value) int {
	w, ok := o.(Scheduler)
	if !ok || v.Loaded == w.Loaded {
		return 0
	}
	if v.Loaded {
		return -1
	}
	return 1
}

func parseScheduler(text string) (Value, error) {
	bad := fmt.Errorf("scheduler %q: want none, or loaded [siblings] hold TIME headroom N|auto [gentle CLASS,…]", text)
	f := strings.Fields(text)
	if len(f) == 1 && f[0] == "none" {
		return Scheduler{}, nil
	}
	var v Scheduler
	if len(f) > 1 && f[1] == "siblings" {
		v.Siblings, f = true, slices.Delete(f, 1, 2)
	}
	if len(f) == 7 && f[5] == "gentle" {
		v.Gentle, f = f[6], f[:5]
	}
	if len(f) != 5 || f[0] != "loaded" || f[1] != "hold" || f[3] != "headroom" {
		return nil, bad
	}
	var err error
	if v.Hold, err = time.ParseDuration(f[2]); err != nil || v.Hold < 0 {
		return nil, bad
	}
	v.Loaded = true
	if f[4] == "auto" {
		v.Headroom = SchedulerHeadroom
		return v, nil
	}
	if v.Headroom, err = strconv.Atoi(f[4]); err != nil || v.Headroom < 0 {
		return nil, bad
	}
	return v, nil
}

// Threads is the state of the threads of a cgroup. Tenon writes ThreadsNormal
// and ThreadsBE. ThreadsMixed occurs only in values that Tenon reads.
type Threads string

// The values of the attributes of threads, such as FilePolicy and FileCookie.
const (
	// ThreadsNormal means that no thread has the attribute that Tenon sets.
	ThreadsNormal Threads = "normal"
	// ThreadsBE means that all threads have the attribute: SCHED_EXT (FilePolicy),
	// the BE cookie (FileCookie) or the long slice of Tenon (FileSlice).
	ThreadsBE Threads = "best-effort"
	// ThreadsMixed means that the cgroup has both normal and best-effort threads.
	ThreadsMixed Threads = "mixed"
)

var threads = []Threads{ThreadsBE, ThreadsMixed, ThreadsNormal}

func (v Threads) String() string { return string(v) }

func (v Threads) Round(Kernel) Value { return v }

// CompareWidth orders the states: best-effort is the narrowest, then mixed, then normal.
func (v Threads) CompareWidth(o Value) int {
	return compareWith(o, func(w Threads) int { return cmp.Compare(slices.Index(threads, v), slices.Index(threads, w)) })
}

func parseThreads(text string) (Value, error) {
	if v := Threads(text); slices.Contains(threads, v) {
		return v, nil
	}
	return nil, fmt.Errorf("threads %q: want one of %q", text, threads)
}

// Isolation is the state of the isolation mechanisms at run time.
type Isolation struct {
	// Failures are the failures of supported mechanisms in the last hour, oldest first. For
	// example, the kernel ejected the scheduler or refused to load it.
	Failures []Failure `json:"failures,omitempty"`
	// Foreign is the name of a sched_ext scheduler that another component has
	// loaded. It is empty if there is none.
	Foreign string `json:"foreign,omitempty"`
	// Cookies is the number of processes, of any class, to which another
	// program gave a core-scheduling cookie.
	Cookies int `json:"cookies,omitempty"`
	// LSOn is the run time of LS work on each CPU. It is nil if this time is not counted.
	LSOn map[unit.CPU]time.Duration `json:"ls_on,omitempty"`
	// Request is the request of an operator to the running agent.
	Request Request `json:"request,omitzero"`
}

// Request is a mechanism that an operator requested at run time. It replaces the configured
// one and clears earlier failures. The zero Request means that there is no such request.
type Request struct {
	At time.Time `json:"at"`
	// Mechanism is the strongest mechanism to use. If it is empty, the configuration decides.
	Mechanism Mechanism `json:"mechanism,omitempty"`
}

// A Failure is a failure of an isolation mechanism at run time. At is on the
// clock of Snapshot.At.
type Failure struct {
	At        time.Time `json:"at"`
	Mechanism Mechanism `json:"mechanism"`
	Why       string    `json:"why"`
	// Refused says that the kernel refused the mechanism before its first use.
	// If Refused is false, the mechanism failed while it was in use. After
	// three such failures within an hour, Tenon disables the mechanism.
	Refused bool `json:"refused,omitempty"`
}
