package sim

import (
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// An Isolation lists the isolation mechanisms of a simulated kernel. Siblings
// come from the topology.
type Isolation struct {
	// Marks is the kernel's kind of vendor mark, one of node.VendorMarks, or ""
	// if the kernel has none.
	Marks node.Feature
	// MarksOff means that all marks are off and cannot be turned on.
	MarksOff bool
	// Features lists the features that knobs of threads need: see ThreadFeatures.
	Features []node.Feature
	// Foreign is the name of a sched_ext scheduler that another component has
	// loaded, or "".
	Foreign string
	// Cookies is the number of threads that have a core-scheduling cookie of
	// another component.
	Cookies int
	// Room is the maximum number of cgroups in the table of the BE scheduler. 0
	// stands for the size of the real table.
	Room int
}

// ThreadFeatures lists the features that the knobs of threads need: one for each
// mechanism that sets an attribute of threads, and the one for their time slices.
func ThreadFeatures() []node.Feature {
	var all []node.Feature
	for _, f := range node.FilesOf(node.CategoryThreads) {
		all = append(all, f.Needs())
	}
	return all
}

func (i Isolation) has(f node.Feature) bool { return slices.Contains(i.Features, f) }

// An isolationState is an Isolation with its present state.
type isolationState struct {
	Isolation
	without  []string
	loaded   node.Scheduler
	orders   orders
	failures []node.Failure
	// ticked holds values that writeIsolation has set: the marks of cgroups,
	// and the attributes of threads by the cgroup of the threads.
	ticked map[node.Knob]node.Value
}

// The names of the rules of isolation. The conformance suite has a fact for
// each rule, with the same name.
const (
	markKeepsWeight     = "a mark comes and goes without the weight"
	lateComers          = "a task that enters a group later is seen"
	oneScheduler        = "a second scheduler is refused"
	cookieSiblings      = "without siblings there are no cookies"
	failuresAreReported = "a refusal of the kernel is a mechanism failure"
	ordersEnd           = "orders end with the scheduler"
	orderNeedsGroup     = "a cgroup that does not exist gets no order"
	orderIsValid        = "a slot that does not exist is refused"
)

// IsolationRules returns the names of the rules of isolation.
func IsolationRules() []string {
	return []string{markKeepsWeight, lateComers, oneScheduler, cookieSiblings, failuresAreReported, ordersEnd, orderNeedsGroup, orderIsValid}
}

func newIsolated(i Isolation, without []string) *isolationState {
	return &isolationState{Isolation: i, without: without, ticked: map[node.Knob]node.Value{}}
}

func (i *isolationState) obeys(rule string) bool { return !slices.Contains(i.without, rule) }

// Load acts as if another component had loaded a scheduler with the name foreign.
// If the name is empty, it acts as if that component had unloaded its scheduler.
func (n *Node) Load(foreign string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isolated.Foreign = foreign
}

// Eject acts as if the kernel had ejected the BE scheduler.
func (n *Node) Eject(why string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.isolated.unload()
	n.isolated.failures = append(n.isolated.failures, node.Failure{At: n.now, Mechanism: node.MechanismSchedExt, Why: why})
}

// fillIsolation adds the isolation mechanisms and their state to a snapshot.
func (n *Node) fillIsolation(s *node.Snapshot) {
	i := n.isolated
	if i == nil {
		return
	}
	answer := func(m node.Feature, is bool) {
		s.Capabilities[m] = node.Answer{Verdict: map[bool]node.Verdict{true: node.Yes, false: node.No}[is], Why: "simulated"}
	}
	for _, v := range node.VendorMarks {
		answer(v.Can, v.Can == i.Marks)
	}
	for _, f := range ThreadFeatures() {
		answer(f, i.has(f) && (f != node.FeatureCoreSched || n.topology.SMT() || !i.obeys(cookieSiblings)))
	}
	answer(node.FeatureHardwareSMT, n.topology.SMT())
	i.failures = slices.DeleteFunc(i.failures, func(f node.Failure) bool { return n.now.Sub(f.At) >= time.Hour })
	s.Isolation = node.Isolation{Failures: slices.Clone(i.failures), Foreign: i.Foreign, Cookies: i.Cookies}
	if i.has(node.FeatureSchedExt) {
		s.Knobs.Now[node.Knob{File: node.FileScheduler}] = i.loaded
		s.Knobs.Now[node.Knob{File: node.FileSchedulerCap}] = i.orders.cap
	}
}

// readIsolation reads a knob of isolation.
func (n *Node) readIsolation(k node.Knob) (node.Value, error) {
	i := n.isolated
	if why := i.whyMissing(k.File); why != "" {
		return nil, fmt.Errorf("read %v: %s: %w", k, why, syscall.ENOENT)
	}
	switch k.File {
	case node.FileScheduler:
		return i.loaded, nil
	case node.FileSchedulerCap:
		if k.Cgroup != "" {
			return nil, fmt.Errorf("read %v: the cap is of the node: %w", k, syscall.ENOENT)
		}
		return i.readOrder(k), nil
	case node.FileSchedulerGroup:
		return i.readOrder(k), nil
	case node.FileIdentity:
		if v, marked := i.ticked[k]; marked {
			return v, nil
		}
		return node.IdentityNone, nil
	}
	be, others := 0, 0
	for _, t := range n.tasks {
		switch {
		case !k.Cgroup.Contains(t.at):
		case t.has[k.File] || !i.obeys(lateComers) && i.ticked[k] == node.Value(node.ThreadsBE):
			be++
		default:
			others++
		}
	}
	switch {
	case be > 0 && others > 0:
		return node.ThreadsMixed, nil
	case be > 0 || others == 0 && i.ticked[k] == node.Value(node.ThreadsBE):
		return node.ThreadsBE, nil
	}
	return node.ThreadsNormal, nil
}

// whyMissing returns why the kernel lacks a knob, or "" if it has the knob.
func (i *isolationState) whyMissing(f node.File) string {
	switch {
	case i == nil:
		return "this kernel has no isolation mechanism"
	case f == node.FileIdentity:
		if i.Marks == "" {
			return "this kernel has no marks"
		}
	case !i.has(f.Needs()):
		return "this kernel has no " + string(f.Needs())
	}
	return ""
}

// applyIsolation performs a step on a knob of isolation.
func (n *Node) applyIsolation(s plan.Step) error {
	if s.Knob.File.OrdersScheduler() {
		return applyOrder(n, s)
	}
	found, err := n.readIsolation(s.Knob)
	if err != nil {
		return fmt.Errorf("apply %v: %w", s, err)
	}
	if n.groups[s.Knob.Cgroup] == nil {
		return fmt.Errorf("apply %v: the cgroup is gone", s)
	}
	if err := n.writeIsolation(s.Knob, s.To); err != nil {
		err = fmt.Errorf("apply %v: %w", s, err)
		if i, m := n.isolated, node.MechanismOf(s.Knob.File); i.obeys(failuresAreReported) && !s.Release && m != "" {
			i.failures = append(i.failures, node.Failure{At: n.now, Mechanism: m, Why: err.Error(), Refused: true})
		}
		return err
	}
	if s.Release {
		delete(n.before, s.Knob)
	} else if _, touched := n.before[s.Knob]; !touched {
		n.before[s.Knob] = found
	}
	return nil
}

func (n *Node) writeIsolation(k node.Knob, v node.Value) error {
	i := n.isolated
	if n.wouldHang(k, v) { // some vendor kernels hang
		return errors.New("the machine hangs: marks and core-scheduling cookies are both in use")
	}
	switch v := v.(type) {
	case node.Identity:
		if v != node.IdentityNone && i.MarksOff {
			return fmt.Errorf("write %s %v: %w", i.Marks, v, syscall.EINVAL)
		}
		i.ticked[k] = v
		if i.marksIdle() && !i.obeys(markKeepsWeight) {
			idle := map[bool]string{true: "1", false: "0"}[v < node.IdentityNone]
			return n.write(k.Cgroup, "cpu.idle", idle) // some vendor kernels do this by themselves
		}
		return nil
	case node.Scheduler:
		if v.Loaded && i.Foreign != "" && i.obeys(oneScheduler) {
			return fmt.Errorf("load the scheduler: %w", syscall.EBUSY)
		}
		if !v.Loaded {
			i.unload()
			return nil
		}
		i.loaded = v
		return nil
	case node.Threads:
		if v == node.ThreadsBE && k.File == node.FileCookie && !n.topology.SMT() && i.obeys(cookieSiblings) {
			return fmt.Errorf("prctl PR_SCHED_CORE: %w", syscall.ENODEV)
		}
		i.ticked[k] = v
		for _, t := range n.tasks {
			if k.Cgroup.Contains(t.at) {
				t.has[k.File] = v == node.ThreadsBE
			}
		}
		return nil
	}
	return fmt.Errorf("cannot write a value of type %T", v)
}

// marksIdle reports whether the BE mark of this kernel also makes a cgroup idle.
func (i *isolationState) marksIdle() bool {
	return slices.ContainsFunc(node.VendorMarks, func(v node.VendorMark) bool { return v.Can == i.Marks && v.Idles })
}

// wouldHang reports whether both marks and core-scheduling cookies would be in
// use after this write. Some real kernels then hang.
func (n *Node) wouldHang(k node.Knob, v node.Value) bool {
	marked := v.CompareWidth(node.IdentityNone) < 0
	tagged := k.File == node.FileCookie && v == node.Value(node.ThreadsBE)
	others := n.isolated.Cookies > 0
	for at, was := range n.isolated.ticked {
		marked = marked || at != k && was.CompareWidth(node.IdentityNone) < 0
		others = others || at != k && at.File == node.FileCookie && was == node.Value(node.ThreadsBE)
	}
	return marked && (tagged || others)
}
