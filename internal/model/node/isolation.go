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

// A Mechanism is an isolation mechanism: a means by which the kernel keeps BE
// off the CPUs of LS. Each mechanism isolates better than the next in the
// preference order, and needs more of the kernel.
type Mechanism string

// The isolation mechanisms.
const (
	// MechanismVendor marks cgroups for a vendor's kernel, which does the rest:
	// Group Identity, or the QoS levels of openEuler.
	MechanismVendor Mechanism = "vendor"
	// MechanismSchedExt moves BE threads to a sched_ext scheduler. Its scheduling
	// class ranks below all others, and it runs no BE on siblings of CPUs that
	// run LS threads (Linux 6.12).
	MechanismSchedExt Mechanism = "sched_ext"
	// MechanismCoreSched gives best-effort threads a core-scheduling cookie: they
	// share no core with other threads (Linux 5.14).
	MechanismCoreSched Mechanism = "core_sched"
	// MechanismSiblings keeps best-effort work, by cpuset, off the siblings of the
	// CPUs on which latency-sensitive work was seen.
	MechanismSiblings Mechanism = "siblings"
	// MechanismIdle is cpu.idle alone (Linux 5.15).
	MechanismIdle Mechanism = "cpu.idle"
	// MechanismWeight is the least weight, on kernels without cpu.idle.
	MechanismWeight Mechanism = "weight"
)

// Mechanisms is the preference order, from the strongest down.
var Mechanisms = []Mechanism{MechanismVendor, MechanismSchedExt, MechanismCoreSched, MechanismSiblings, MechanismIdle, MechanismWeight}

// The knobs of isolation.
const (
	// FileIdentity is the mark of a cgroup on a vendor's kernel:
	// cpu.bvt_warp_ns, cpu.priority with cpu.identity, or cpu.qos_level.
	FileIdentity File = "identity"
	// FileScheduler is the scheduler of best-effort threads. It is a knob of
	// the node, which stands as the root cgroup.
	FileScheduler File = "scheduler"
	// FilePolicy is the scheduling policy of the threads in and below a cgroup.
	FilePolicy File = "policy"
	// FileCookie is the core-scheduling cookie of the threads in and below a
	// cgroup.
	FileCookie File = "cookie"
	// FileSlice is the time slice of the threads in and below a cgroup. It is
	// of no mechanism: it stands in where the cgroup itself cannot be idle.
	FileSlice File = "slice"
)

// Identity is how a vendor's kernel treats a group: IdentityBE yields to all
// others, IdentityHigh goes first, and IdentityExpels also keeps BE off the
// siblings of its CPUs. The numbers are those of cpu.bvt_warp_ns; where a
// kernel knows fewer levels they are rounded to what it has.
type Identity int

// The identities.
const (
	IdentityBE     Identity = -1
	IdentityNone   Identity = 0
	IdentityHigh   Identity = 1
	IdentityExpels Identity = 2
)

// String prints the number.
func (v Identity) String() string { return strconv.Itoa(int(v)) }

// Rounded returns v.
func (v Identity) Rounded(Kernel) Value { return v }

// Narrower compares the levels.
func (v Identity) Narrower(o Value) int {
	return against(o, func(w Identity) int { return cmp.Compare(v, w) })
}

func parseIdentity(text string) (Value, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < int(IdentityBE) || n > int(IdentityExpels) {
		return nil, fmt.Errorf("identity %q: want a number from %d to %d", text, IdentityBE, IdentityExpels)
	}
	return Identity(n), nil
}

// Scheduler is the scheduler of best-effort threads that Tenon has loaded.
// The zero Scheduler: none. It dies with the process that loaded it.
type Scheduler struct {
	Loaded bool
	// Siblings: best-effort threads stay off the siblings of
	// latency-sensitive ones, also for so long after those have stopped.
	Siblings bool
	Hold     time.Duration
	// Headroom is how many whole cores of each L3 cache are left idle for
	// latency-sensitive threads that wake up; SchedulerHeadroom: as many as the
	// scheduler finds right.
	Headroom int
	// Gentle names, with commas between them, the latency-sensitive classes
	// that only go first: best-effort threads may run beside theirs.
	Gentle string
}

// SchedulerHeadroom leaves the headroom to the scheduler.
const SchedulerHeadroom = -1

// Expels reports whether best-effort threads stay off the siblings of those of
// a class.
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

// Rounded returns v.
func (v Scheduler) Rounded(Kernel) Value { return v }

// Narrower is negative if v is loaded and the other is not.
func (v Scheduler) Narrower(o Value) int {
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

// Threads says what the threads of a group have in common. Mixed is only ever
// read: some are in, some are not.
type Threads string

// The values of FilePolicy, FileCookie and FileSlice.
const (
	// ThreadsNormal have no policy (FilePolicy), no cookie (FileCookie) or no
	// slice (FileSlice) of Tenon's.
	ThreadsNormal Threads = "normal"
	// ThreadsBE have SCHED_EXT (FilePolicy), the cookie of best-effort threads
	// (FileCookie), or the longest slice that there is (FileSlice).
	ThreadsBE Threads = "best-effort"
	// ThreadsMixed are some of both.
	ThreadsMixed Threads = "mixed"
)

var threads = []Threads{ThreadsBE, ThreadsMixed, ThreadsNormal}

// String prints the word.
func (v Threads) String() string { return string(v) }

// Rounded returns v.
func (v Threads) Rounded(Kernel) Value { return v }

// Narrower orders by how many threads are best-effort ones.
func (v Threads) Narrower(o Value) int {
	return against(o, func(w Threads) int { return cmp.Compare(slices.Index(threads, v), slices.Index(threads, w)) })
}

func parseThreads(text string) (Value, error) {
	if v := Threads(text); slices.Contains(threads, v) {
		return v, nil
	}
	return nil, fmt.Errorf("threads %q: want one of %q", text, threads)
}

// Isolation is the state of the isolation mechanisms at run time.
type Isolation struct {
	// Failures are the failures of mechanisms that the node supports: the kernel
	// ejected the scheduler, refused to load it, or a mark could not be
	// written. The oldest first, at most an hour old.
	Failures []Failure `json:"falls,omitempty"`
	// Foreign is the name of another sched_ext scheduler that is loaded.
	Foreign string `json:"foreign,omitempty"`
	// Cookies is the number of processes, BE or not, with a core-scheduling
	// cookie that another program made.
	Cookies int `json:"cookies,omitempty"`
	// LSOn is the run time of LS on each CPU, as a counter. Nil: not counted.
	LSOn map[unit.CPU]time.Duration `json:"ls_on,omitempty"`
	// Request is the request of an operator to the running agent.
	Request Request `json:"asked,omitzero"`
}

// Request is the request of an operator at run time. It overrides the
// configuration, and earlier failures do not count any more. The zero Asked
// requests nothing.
type Request struct {
	At time.Time `json:"at"`
	// Mechanism is the strongest mechanism to use; empty: as configured.
	Mechanism Mechanism `json:"rung,omitempty"`
}

// A Failure is a failure of an isolation mechanism at run time. At is on the
// clock of Snapshot.At.
type Failure struct {
	At        time.Time `json:"at"`
	Mechanism Mechanism `json:"rung"`
	Why       string    `json:"why"`
	// Refused: the mechanism was never in use, because the kernel refused it.
	// Any other failure ended its use; three of these in an hour are too many.
	Refused bool `json:"refused,omitempty"`
}
