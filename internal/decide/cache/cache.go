// Package cache decides how the classes share L3 caches and memory bandwidth,
// and in which control group of resctrl each workload is.
package cache

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Owned lists the knobs that this package decides.
var Owned = []node.File{node.FileControlGroup, node.FileL3, node.FileMB}

// Config holds the key resctrlQOS of resource-qos-config.
type Config struct {
	// Classes holds the share of each class. Tenon sets nothing for a class
	// that is absent. LSE uses the share of LSR.
	Classes map[node.Class]Share `json:"classes,omitempty"`
	// Peak is the memory bandwidth behind one L3 cache, in bytes per second, or
	// 0 if it is not configured. A machine needs Peak if its MB lines have
	// amounts instead of percentages.
	Peak unit.Bytes `json:"peak,omitempty"`
}

// Files lists the knobs that Decide may set for these workloads.
func (c Config) Files(workloads []node.Workload) []node.File {
	if len(c.Classes) == 0 && !slices.ContainsFunc(workloads, func(w node.Workload) bool { return OwnsControl(&w) }) {
		return nil
	}
	return Owned
}

// A Share says how much a class may use of each L3 cache, and of the memory
// bandwidth behind that cache, in percent.
type Share struct {
	Start     unit.Percent `json:"catRangeStartPercent"`
	End       unit.Percent `json:"catRangeEndPercent"`
	Bandwidth unit.Percent `json:"mbaPercent"`
}

// isWhole reports whether the share limits nothing.
func (c Share) isWhole() bool { return c.Start <= 0 && c.End >= 100 && c.Bandwidth >= 100 }

// Decide returns the wanted L3 and MB lines of the resctrl control groups, and
// the control group of each workload. The classes LSR, LS and BE have control
// groups. BE gets at most its share, rounded down, minus the cuts of the
// back-off q. Every other class gets at least its share, rounded up, and has a
// limit only if its share is below 100 %. Work without a control group stays in
// the default one, which has no limit. A workload with its own share gets its
// own control group while the hardware has one left.
//
// The argument besideLS says that BE may run on the siblings of LS work. Where a
// limit of memory bandwidth holds for a whole core, BE then has none: it would
// slow LS down.
func Decide(c Config, q BackOff, besideLS bool, s node.Snapshot) []plan.Want {
	d := divider{Config: c, backOff: q, snap: s, owners: ownersOf(s)}
	d.limitsLS = besideLS && s.Resctrl.MBPerCore && s.Topology.SMT()
	d.grant()
	wants := make([]plan.Want, 0, 2*len(node.ControlGroups)+len(s.Workloads))
	for _, name := range d.names() {
		share, asked := d.shareOf(name)
		if !asked || !d.isUsed(name) {
			continue
		}
		if why := d.refused[name]; why != "" {
			wants = append(wants, d.refuseGroup(name, why)...)
			continue
		}
		wants = append(wants, d.ways(name, share), d.bandwidth(name, share))
	}
	for i := range s.Workloads {
		if want, any := d.join(&s.Workloads[i]); any {
			wants = append(wants, want)
		}
	}
	return slices.DeleteFunc(wants, func(w plan.Want) bool { return w.Intent == "" })
}

// A divider holds the input of one call of Decide, and the control groups that
// it granted or refused.
type divider struct {
	Config
	backOff BackOff
	snap    node.Snapshot
	// limitsLS says that a limit of BE's memory bandwidth would also hold for LS
	// work on the siblings.
	limitsLS bool
	owners   []int                 // the workloads that request their own control groups, as indexes into snap.Workloads
	granted  map[string]node.Value // by name: the value that puts tasks into the group
	refused  map[string]string     // by name: the reason why the group is not available
}

// OwnsControl reports whether a workload requests its own control group.
func OwnsControl(w *node.Workload) bool {
	return strings.HasPrefix(w.Overrides.Cache.ControlGroup, node.ControlGroupPrefix) && w.Class.Control() != ""
}

// names lists the control groups of classes, and after them the control groups
// of single workloads. Each of the two lists is sorted.
func (d divider) names() []string {
	var own []string
	for _, i := range d.owners {
		own = append(own, d.snap.Workloads[i].Overrides.Cache.ControlGroup)
	}
	slices.Sort(own)
	return append(slices.Clone(node.ControlGroups), slices.Compact(own)...)
}

// owner returns the workload that has a control group for itself. It returns
// nil if the group belongs to a class.
func (d divider) owner(control string) *node.Workload {
	for _, i := range d.owners {
		if w := &d.snap.Workloads[i]; w.Overrides.Cache.ControlGroup == control {
			return w
		}
	}
	return nil
}

// ownersOf lists the workloads that request control groups of their own.
func ownersOf(s node.Snapshot) (owners []int) {
	for i := range s.Workloads {
		if OwnsControl(&s.Workloads[i]) {
			owners = append(owners, i)
		}
	}
	return owners
}

// shareOf returns the share that is configured for the class or the workload of
// a control group. It returns false if there is none.
func (d divider) shareOf(control string) (Share, bool) {
	w := d.owner(control)
	if w == nil {
		share, asked := d.Classes[node.Class(control)]
		return share, asked
	}
	share, asked := d.Classes[node.Class(w.Class.Control())]
	if !asked {
		share = Share{End: 100, Bandwidth: 100}
	}
	ask := w.Overrides.Cache
	return Share{ask.Start.Or(share.Start), ask.End.Or(share.End), ask.Bandwidth.Or(share.Bandwidth)}, true
}

// isUsed reports whether any workload uses a control group.
func (d divider) isUsed(control string) bool {
	if d.owner(control) != nil {
		return true
	}
	for i := range d.snap.Workloads {
		if w := &d.snap.Workloads[i]; w.Class.Control() == control && !OwnsControl(w) {
			return true
		}
	}
	return false
}

// grant decides which control groups exist. The hardware supports only few. The
// group of BE comes first, because it protects all other work. Groups with a
// limit follow. Groups without a limit come last: they only measure.
func (d *divider) grant() {
	d.granted, d.refused = map[string]node.Value{}, map[string]string{}
	r := d.snap.Resctrl
	free := r.Groups - 1 - r.Others
	order := d.names()
	slices.SortStableFunc(order, func(a, b string) int { return d.rank(a) - d.rank(b) })
	for _, name := range order {
		if _, asked := d.shareOf(name); !asked || !d.isUsed(name) {
			continue
		}
		switch {
		case r.Missing != "":
			d.refused[name] = "nothing can be divided: " + r.Missing
		case r.Groups == 0:
			d.refused[name] = "not known yet whether this node can divide caches"
		case r.Groups == 1:
			d.refused[name] = "nothing can be divided: this processor has only one control group (1 CLOSID)"
		case slices.Contains(r.Taken, name):
			d.refused[name] = fmt.Sprintf("control group %s was made by another component, which uses it", name)
		case free <= 0:
			d.refused[name] = fmt.Sprintf("all %d control groups (CLOSIDs) are in use: it stays in the default one", r.Groups)
			if d.owner(name) != nil {
				d.refused[name] = fmt.Sprintf("all %d control groups (CLOSIDs) are in use: it is in that of its class", r.Groups)
			}
		default:
			d.granted[name] = node.ControlGroupsOf(name)
			free--
		}
	}
}

func (d divider) rank(control string) int {
	share, _ := d.shareOf(control)
	switch {
	case control == string(node.BE):
		return 0
	case !share.isWhole():
		return 1
	}
	return 2
}

// refuseGroup returns the wants for a control group that the node cannot have.
// If Tenon made the group, the wants release it, because another group may need
// its CLOSID.
func (d divider) refuseGroup(control, why string) []plan.Want {
	var wants []plan.Want
	for _, f := range []node.File{node.FileL3, node.FileMB} {
		w := d.want(control, f)
		if _, touched := d.snap.Knobs.Before[w.Knob]; touched {
			w.Intent, w.Reason = plan.Release, why
			wants = append(wants, w.Want)
		}
	}
	if len(wants) == 0 {
		wants = append(wants, d.want(control, node.FileL3).abstain(why))
	}
	return wants
}

// A cacheWant is a want whose intent and reason are not decided yet.
type cacheWant struct{ plan.Want }

func (d divider) want(control string, f node.File) cacheWant {
	w := d.owner(control)
	be := w == nil && control == string(node.BE) || w != nil && w.Class == node.BE
	return cacheWant{plan.Want{Knob: node.Knob{ControlGroup: control, File: f}, Owner: plan.OwnerCache, BE: be}}
}

func (w cacheWant) abstain(why string) plan.Want {
	w.Intent, w.Reason = plan.Abstain, why
	return w.Want
}

func (w cacheWant) set(v node.Value, reason string) plan.Want {
	w.Intent, w.Value, w.Reason = plan.Set, v, reason
	return w.Want
}

// ways returns the want for the L3 line of a control group. The line contains
// the ways that the group may fill in each L3 cache.
func (d divider) ways(control string, share Share) plan.Want {
	w := d.want(control, node.FileL3)
	l3 := d.snap.Resctrl.L3
	if len(l3.Domains) == 0 || l3.Mask == 0 {
		if share.Start <= 0 && share.End >= 100 {
			return plan.Want{}
		}
		return w.abstain("this machine does not divide its L3 caches")
	}
	of := ways{Mask: l3.Mask, Least: l3.Least, Sparse: l3.Sparse}
	asked := of.part(share.Start, share.End, w.BE)
	mask := asked
	if w.BE && d.backOff.Cut > 0 {
		mask = of.part(share.Start, share.Start+d.backOff.cutShare(share.End-share.Start), true)
	}
	by := node.Ways{}
	for _, id := range l3.Domains {
		by[id] = mask
	}
	reason := fmt.Sprintf("%s may fill %d of the %d ways of each L3 cache, from %d%% to %d%%",
		control, bits.OnesCount64(asked), bits.OnesCount64(l3.Mask), int(share.Start), int(share.End))
	if asked == l3.Mask {
		reason = fmt.Sprintf("%s may fill all %d ways of each L3 cache", control, bits.OnesCount64(l3.Mask))
	}
	if mask != asked {
		reason += d.backOff.explainCuts(fmt.Sprintf("%d of them", bits.OnesCount64(mask)))
	}
	return w.set(node.L3Of(by), reason)
}

// bandwidth returns the want for the memory bandwidth of a control group.
func (d divider) bandwidth(control string, share Share) plan.Want {
	w := d.want(control, node.FileMB)
	rule := d.snap.Knobs.Kernel.MB
	if len(d.snap.Resctrl.MBDomains) == 0 || rule.Unit == "" {
		if share.Bandwidth >= 100 {
			return plan.Want{}
		}
		return w.abstain("this machine does not divide its memory bandwidth")
	}
	left := share.Bandwidth
	if w.BE {
		left = d.backOff.cutShare(share.Bandwidth)
	}
	if w.BE && d.limitsLS && left < 100 {
		return w.set(d.everywhere(rule.Most), fmt.Sprintf("%s gets all of the memory bandwidth, not %d%%: "+
			"here a limit holds for a whole core, and the isolation mechanism lets BE run on siblings of LS", control, int(left)))
	}
	asked, known := d.amount(rule, share.Bandwidth, w.BE)
	if !known {
		return w.abstain(fmt.Sprintf("this machine divides memory bandwidth in %s: %d%% needs memoryBandwidth, the amount that is 100%%", rule.Unit, int(share.Bandwidth)))
	}
	n, known := d.amount(rule, left, w.BE)
	if !known {
		n = asked
	}
	reason := fmt.Sprintf("%s gets %d%% of the memory bandwidth", control, int(share.Bandwidth))
	if rule.Unit != node.BandwidthPercent && asked != rule.Most {
		reason += fmt.Sprintf(" of %.4g GB/s", float64(d.Peak)/1e9)
	}
	if n != asked {
		reason += d.backOff.explainCuts(fmt.Sprintf("%d%%", int(left)))
	}
	return w.set(d.everywhere(n), reason)
}

// everywhere returns the MB line with the same amount for each L3 cache.
func (d divider) everywhere(amount uint64) node.MB {
	by := map[node.CacheID]uint64{}
	for _, id := range d.snap.Resctrl.MBDomains {
		by[id] = amount
	}
	return node.MBOf(by)
}

// amount converts a share of the memory bandwidth into the unit of this
// machine. It rounds down if the argument small is set, and otherwise up. If
// the conversion needs Peak, and Peak is 0, amount returns false.
func (d divider) amount(rule node.Bandwidth, share unit.Percent, small bool) (uint64, bool) {
	if share >= 100 {
		return rule.Most, true
	}
	step := max(rule.Step, 1)
	n, whole := uint64(max(share, 0)), uint64(1) // percent
	switch rule.Unit {
	case node.BandwidthEighths:
		n, whole = n*uint64(d.Peak), 100*1e9/8
	case node.BandwidthMegabytes:
		n, whole = n*uint64(d.Peak), 100<<20
	}
	if rule.Unit != node.BandwidthPercent && d.Peak <= 0 {
		return 0, false
	}
	whole *= step
	steps := n / whole
	if n%whole > 0 && !small {
		steps++
	}
	// Some machines accept 0. But 0 would stop the tasks at every memory
	// access.
	return min(max(steps*step, rule.Least, step), rule.Most), true
}

// join returns the want for the control group of a workload. Tasks that another
// component has put into a control group stay there.
func (d *divider) join(w *node.Workload) (plan.Want, bool) {
	control := w.Class.Control()
	if OwnsControl(w) && d.granted[w.Overrides.Cache.ControlGroup] != nil {
		control = w.Overrides.Cache.ControlGroup
	}
	knob := node.Knob{Cgroup: w.Cgroup, File: node.FileControlGroup}
	now, known := d.snap.Knobs.Now[knob].(node.ControlGroup)
	if control == "" || !known {
		return plan.Want{}, false
	}
	want := plan.Want{Knob: knob, Owner: plan.OwnerCache, BE: w.Class == node.BE}
	foreign, ours := "", false
	for g := range strings.SplitSeq(now.Groups, ",") {
		switch {
		case g == node.DefaultControlGroup:
		case node.IsControlGroup(g) && !slices.Contains(d.snap.Resctrl.Taken, g):
			ours = true
		default:
			foreign = g
		}
	}
	switch {
	case foreign != "":
		want.Intent, want.Reason = plan.Abstain, "another component put its tasks into control group "+foreign
		_, asked := d.shareOf(control)
		return want, asked
	case d.granted[control] != nil:
		want.Intent, want.Value = plan.Set, d.granted[control]
		want.Reason = "the tasks of its class share a control group"
		if control != w.Class.Control() {
			want.Reason = "its owner asks for a share of its own"
		}
		return want, true
	case ours:
		want.Intent, want.Value = plan.Set, node.ControlGroupsOf(node.DefaultControlGroup)
		want.Reason = "its class has no control group of its own"
		return want, true
	}
	return want, false
}
