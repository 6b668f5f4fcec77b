package podpages

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/kube"
	"tenon.sh/tenon/internal/cluster/objectivetext"
	"tenon.sh/tenon/internal/cluster/schedulers"
	"tenon.sh/tenon/internal/cluster/stored"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/table"
)

// A PodState says whether a pod has a node and CPUs.
type PodState string

const (
	PodWaits      PodState = "waits"      // it has no node
	PodGated      PodState = "gated"      // it has no node and a scheduling gate
	PodHolds      PodState = "holds"      // its node gave it CPUs
	PodShares     PodState = "shares"     // it asks for no CPUs
	PodRefused    PodState = "refused"    // its node gave it no CPUs
	PodUnreported PodState = "unreported" // its node has not reported it
	PodLost       PodState = "lost"       // its node does not exist
	PodEnded      PodState = "ended"
)

// A PodPage says which CPUs a pod has and who chose them. For a pod without a
// node, it also says what the pod waits for, and why each node refuses it.
type PodPage struct {
	Pod       string                   `json:"pod"`
	Asks      Asks                     `json:"asks"`
	Faults    []string                 `json:"faults,omitempty"`
	Resize    string                   `json:"resize,omitempty"`
	State     PodState                 `json:"state"`
	Scheduler string                   `json:"scheduler"`
	Node      string                   `json:"node,omitempty"`
	Held      *Held                    `json:"held,omitempty"`
	Code      string                   `json:"code,omitempty"`
	Why       string                   `json:"why,omitempty"`
	Wait      *Wait                    `json:"wait,omitempty"`
	Objective *objectivetext.Objective `json:"objective,omitempty"`
	Nodes     []NodeAnswer             `json:"nodes,omitempty"`
	// NotLookedAt lists what could not be read, with the reasons.
	NotLookedAt []string `json:"notLookedAt,omitempty"`

	lacks  Lacks
	age    string // of the report of the node
	shares string // on which CPUs a pod of the state PodShares runs
	now    time.Time
}

// Held are the CPUs that a pod holds on its node.
type Held struct {
	Policy   string    `json:"policy"`
	CPUs     string    `json:"cpus"`
	Domain   string    `json:"domain,omitempty"`
	Where    string    `json:"where"`
	By       string    `json:"by,omitempty"`
	Code     string    `json:"code,omitempty"`
	Why      string    `json:"why,omitempty"`
	Chosen   string    `json:"chosen,omitempty"`   // the choice of the scheduler, if the node has moved the pod since
	Changing bool      `json:"changing,omitempty"` // the pod asks for other CPUs now, and the node has not read this yet
	Reported time.Time `json:"reported"`
}

// A Wait says what a pod without a node waits for.
type Wait struct {
	Created        time.Time        `json:"created"`
	Gates          []string         `json:"gates,omitempty"`
	Answered       bool             `json:"answered"`
	Message        string           `json:"message,omitempty"`
	SchedulerState schedulers.State `json:"schedulerState,omitempty"`
	SchedulerText  string           `json:"schedulerText,omitempty"`
	EventsUnread   string           `json:"eventsUnread,omitempty"`
	// NoManager says that tenon-manager does not run, which opens the gates of batch pods.
	NoManager string `json:"noManager,omitempty"`

	unknown bool // what could not be read hides whether the scheduler runs
}

// A NodeAnswer says whether a node would take a pod.
type NodeAnswer struct {
	Node   string   `json:"node"`
	Online int      `json:"online"` // 0: no report
	Open   int      `json:"open"`
	Fits   bool     `json:"fits"`
	Rating *int64   `json:"rating,omitempty"`
	CPUs   string   `json:"cpus,omitempty"`
	Where  string   `json:"where,omitempty"`
	Why    []string `json:"why,omitempty"`
}

// ExplainPod returns the page of a pod, or false if the pod does not exist. seen
// is used only for a pod that waits.
func (c *Cluster) ExplainPod(namespace, name string, seen schedulers.Seen) (*PodPage, bool) {
	p := c.Pod(namespace, name)
	if p == nil {
		return nil, false
	}
	demand := demandOf(p)
	page := &PodPage{Pod: nameOf(p), Asks: asksOf(demand), Scheduler: schedulers.Of(p), Node: p.Spec.NodeName, lacks: c.lacks, now: c.now}
	if p.Spec.NodeName != "" && !kube.HasEnded(p) {
		page.Resize = resizeText(p)
	}
	if n := c.node(p.Spec.NodeName); n != nil {
		page.Objective = objectivetext.Of(p, &n.Node, c.now)
	}
	for _, f := range faultsOf(p) {
		page.Faults = append(page.Faults, f.String())
	}
	switch {
	case kube.HasEnded(p):
		page.State, page.Why = PodEnded, strings.TrimSpace(p.Status.Reason+" "+p.Status.Message)
	case p.Spec.NodeName == "":
		page.State, page.Wait = PodWaits, c.waitOf(p, seen)
		if len(page.Wait.Gates) > 0 {
			page.State = PodGated
		}
		if c.lacks.hides(demand) == "" {
			page.Nodes = c.nodeAnswers(p, demand)
		}
		page.NotLookedAt = c.lacks.texts()
	case c.node(p.Spec.NodeName) == nil && c.lacks.Nodes == "":
		page.State = PodLost
	case c.node(p.Spec.NodeName) == nil:
		page.State, page.Why, page.NotLookedAt = PodUnreported, "on which CPUs it runs is not known"+chosenText(p), c.lacks.texts()
	case demandOf(stored.InForce(p)) == nil && !c.holds(p):
		n := c.node(p.Spec.NodeName)
		page.State, page.shares = PodShares, c.sharedText(n, p)
		if page.shares == "" {
			page.State, page.Why = PodUnreported, cmp.Or(n.age, cpus.NoReport.Text())+", so it is not known on which CPUs the pod runs"
			page.NotLookedAt = c.lacks.texts()
		}
	default:
		c.find(page, p)
	}
	return page, true
}

// chosenText says which CPUs the scheduler of a pod chose, or "".
func chosenText(p *corev1.Pod) string {
	contract, chosen, _ := kube.ChoiceOf(p)
	if !chosen {
		return ""
	}
	return fmt.Sprintf("; its scheduler chose the CPUs %v", contract.CPUs)
}

// holds reports whether the report of the pod's node has CPUs of the pod. If the
// pod asks for none any more, its node has not read the change yet.
func (c *Cluster) holds(p *corev1.Pod) bool {
	n := c.node(p.Spec.NodeName)
	return n.reported && !n.report.Pods[uidOf(p)].CPUs.Empty()
}

// waitOf returns what a pod waits for.
func (c *Cluster) waitOf(p *corev1.Pod, seen schedulers.Seen) *Wait {
	w := &Wait{Created: p.CreationTimestamp.Time, EventsUnread: seen.Unread}
	for _, g := range p.Spec.SchedulingGates {
		w.Gates = append(w.Gates, g.Name)
	}
	w.Message, w.Answered = seen.Verdict(p)
	if seen.Scheduler.Name != "" {
		w.SchedulerState, w.SchedulerText = seen.Scheduler.State(c.now)
		w.unknown = seen.Scheduler.Unknown(c.now) != ""
	}
	return w
}

func (c *Cluster) nodeAnswers(p *corev1.Pod, demand *cpus.PodRequest) []NodeAnswer {
	var all []NodeAnswer
	for _, a := range c.askAll(candidate{Pod: p, demand: demand}) {
		n := NodeAnswer{Node: a.node.Name, Fits: len(a.why) == 0}
		n.Open, n.Online = c.openOf(a.node)
		switch {
		case !n.Fits:
			n.Why = c.withNumbers(a, demand)
		case demand == nil:
			n.Where = "it asks for no CPUs of its own"
		default:
			n.Rating, n.CPUs, n.Where = &a.worth, a.offer.CPUs.String(), describeOffer(demand.Policy, a.offer)
		}
		all = append(all, n)
	}
	return all
}

// withNumbers returns the reasons of a node. A refusal because of its resources
// or CPUs gets numbers, and the names of the pods on these CPUs. Fit counts the
// nodes by equal reasons, so it has such numbers of resources only.
func (c *Cluster) withNumbers(a answer, demand *cpus.PodRequest) []string {
	all := slices.Clone(a.why)
	if a.lack != nil {
		all[0] = a.lack.String() + after(": ", a.node.KubeletReserves(a.lack.name))
	}
	if demand == nil || a.node.closed() != "" {
		return all
	}
	why := c.ledger.View(a.node.Name).Explain(demand, func(uid place.UID) string {
		i := slices.IndexFunc(c.pods, func(p corev1.Pod) bool { return uidOf(&p) == uid })
		if i < 0 {
			return string(uid)
		}
		return nameOf(&c.pods[i])
	})
	if why.Code == cpus.Fits {
		return all
	}
	return append(all[:len(all)-1], why.Full()) // ask adds the reason of the CPUs last
}

// openOf returns the number of open CPUs of a node, and the number of all its
// CPUs. Both are 0 if they are not known.
func (c *Cluster) openOf(n *nodeState) (open, online int) {
	view := c.ledger.View(n.Name)
	if view.Map() == nil {
		return 0, 0
	}
	return view.Open().Len(), view.Map().Len()
}

func openText(open, online int) string {
	if online == 0 {
		return "-"
	}
	return fmt.Sprintf("%d of %d", open, online)
}

// find fills in the CPUs that a pod holds on its node.
func (c *Cluster) find(page *PodPage, p *corev1.Pod) {
	n := c.node(p.Spec.NodeName)
	page.State = PodUnreported
	if !n.reported {
		page.Why = cmp.Or(n.age, cpus.NoReport.Text())
		switch {
		case n.Left() != "":
			page.Why += ", so it has no CPUs of its own there"
		case n.Unread != "":
			page.Why += chosenText(p)
			page.NotLookedAt = c.lacks.texts()
		}
		return
	}
	contract, chosen, _ := kube.ChoiceOf(p)
	h := n.Report.Status.CPUs.Pod(kube.UIDOnNode(p))
	if h == nil {
		page.Why = "no scheduler chose its CPUs, and the node has not reported the pod yet"
		if chosen {
			page.Why = fmt.Sprintf("its scheduler chose the CPUs %v; the node has not reported the pod yet", contract.CPUs)
		}
		return
	}
	if h.CPUs == "" {
		page.State, page.Code, page.Why = PodRefused, h.Code, h.Why
		return
	}
	m := c.ledger.View(n.Name).Map()
	set, home := setOf(h.CPUs), setOf(h.Domain)
	held := &Held{Policy: h.Policy, CPUs: set.String(), Domain: home.String(), By: h.By, Code: h.Code, Why: h.Why, Reported: n.Report.Status.Reported.Time}
	policy, _ := cpus.ParsePolicy(h.Policy)
	if policy == cpus.Exclusive {
		held.Where = describeOffer(policy, m.Judge(set))
	} else {
		held.Where = m.LevelOf(home).One()
	}
	if h.By == "scheduler" && chosen && contract.CPUs != set && contract.Policy != cpus.Pool {
		held.Chosen = contract.CPUs.String()
	}
	held.Changing = page.Resize == "" && hasMore(h, demandOf(p))
	page.State, page.Held, page.age = PodHolds, held, n.age
}

// hasMore reports whether a pod has CPUs that it does not ask for, so its node
// has not read a change of the pod yet. A pod with fewer CPUs is no sign of
// this: there may be no more of them.
func hasMore(h *v1alpha1.PodCPUs, asks *cpus.PodRequest) bool {
	return asks == nil || h.Policy != asks.Policy.String() || asks.Policy != cpus.Pool && setOf(h.CPUs).Len() > asks.CPUs
}

// setOf parses a set of CPUs from a report. It ignores errors, because New has
// already checked the report.
func setOf(text string) unit.CPUSet {
	set, _ := unit.ParseCPUSet(text) //nolint:errcheck // New has checked the report
	return set
}

// Text prints the page.
func (p *PodPage) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s asks for %s.\n", p.Pod, p.Asks.Text)
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  not as written: %s\n", f)
	}
	if p.Resize != "" {
		fmt.Fprintf(&b, "  %s\n", p.Resize)
	}
	switch p.State {
	case PodWaits, PodGated:
		p.Wait.print(&b, p.Scheduler, p.now)
		p.printNodes(&b)
	case PodEnded:
		fmt.Fprintf(&b, "It has ended, and holds no CPUs%s.\n", after(": ", p.Why))
	case PodLost:
		fmt.Fprintf(&b, "It names node %s, which does not exist.\n", p.Node)
	case PodShares:
		fmt.Fprintf(&b, "It is on %s and %s.\n", p.Node, p.shares)
	case PodRefused:
		fmt.Fprintf(&b, "On %s it %s.\n", p.Node, p.Why)
	case PodUnreported:
		fmt.Fprintf(&b, "It is on %s: %s.\n", p.Node, p.Why)
	case PodHolds:
		fmt.Fprintf(&b, "It has %s (%s) of %s%s.\n", table.Count(setOf(p.Held.CPUs).Len(), "CPU"), p.Held.CPUs, p.Node, p.Held.kind())
		if p.Held.Changing {
			fmt.Fprintf(&b, "It does not ask for these any more: the node follows within seconds, when tenond has read its pods again.\n")
		}
		fmt.Fprintf(&b, "%s.\nThe node said so %s. kubectl tenon map %s shows its CPUs.\n", p.Held.author(), p.age, p.Node)
	}
	if o := p.Objective; o != nil {
		fmt.Fprintf(&b, "Its objective (%s): %s.\n  %s\n", o.From, o.Wants(), o.Text)
	}
	for _, text := range p.NotLookedAt {
		fmt.Fprintf(&b, "Not looked at: %s.\n", text)
	}
	return b.String()
}

// after puts a prefix before a text. It returns "" for an empty text.
func after(prefix, text string) string {
	if text == "" {
		return ""
	}
	return prefix + text
}

// kind describes what the pod may do with its CPUs.
func (h *Held) kind() string {
	switch h.Policy {
	case cpus.Exclusive.String():
		return " for itself: " + h.Where
	case cpus.Shared.String():
		return fmt.Sprintf(" as seats, in %s (%s)", h.Where, h.Domain)
	}
	return fmt.Sprintf(", the open ones of %s (%s)", h.Where, h.Domain)
}

// author describes who chose the CPUs that a pod holds.
func (h *Held) author() string {
	switch {
	case cpus.IsAboutPod(h.Code):
		return "It " + h.Why // such as "keeps its 1 CPU and requests 2: ..."
	case h.Chosen != "":
		return fmt.Sprintf("Its scheduler chose the CPUs %s; the node has moved it since", h.Chosen)
	case h.By == "scheduler":
		return "Its scheduler chose them"
	}
	return "The node chose them" + after(": ", h.Why)
}
