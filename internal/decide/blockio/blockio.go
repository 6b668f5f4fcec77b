// Package blockio decides the limits, weights and latency targets of block I/O,
// for classes and for single workloads. The settings of a class apply to the
// sum of the I/O of all its workloads.
package blockio

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/decide/facts"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Owned lists the knobs that this package decides.
var Owned = node.IOFiles

// Config holds the key blkioQOS of resource-qos-config.
type Config struct {
	// Classes holds the settings of each class, as one Device per block device.
	// Tenon sets nothing for a class that is absent.
	Classes map[node.Class][]Device `json:"classes,omitempty"`
}

// A Device holds the limits, weight and latency target of a class or a
// workload. They apply to one block device, or to all disks of a volume group.
type Device node.BlockIO

func (b Device) limits() node.IOLimits {
	l := node.IOLimits{ReadBPS: b.ReadBPS, WriteBPS: b.WriteBPS, ReadIOPS: b.ReadIOPS, WriteIOPS: b.WriteIOPS}
	for _, v := range []*int64{&l.ReadBPS, &l.WriteBPS, &l.ReadIOPS, &l.WriteIOPS} {
		if *v <= 0 {
			*v = node.NoIORate
		}
	}
	return l
}

func (b Device) limited() bool  { return b.limits() != node.NoIOLimits }
func (b Device) weighted() bool { return b.WeightPercent > 0 && b.WeightPercent < 100 }

// Files lists the knobs that Decide may set for these workloads.
func (c Config) Files(workloads []node.Workload) []node.File {
	var files []node.File
	some := func(asks func(Device) bool, knobs ...node.File) {
		for _, blocks := range c.Classes {
			if slices.ContainsFunc(blocks, asks) {
				files = append(files, knobs...)
				return
			}
		}
		if slices.ContainsFunc(workloads, func(w node.Workload) bool { return slices.ContainsFunc(blocksOf(w), asks) }) {
			files = append(files, knobs...)
		}
	}
	some(Device.limited, node.FileIOMax)
	some(Device.weighted, node.FileIOWeight, node.FileBFQWeight)
	some(func(b Device) bool { return b.Latency > 0 }, node.FileIOLatency)
	return files
}

// Decide returns the wanted values of io.max, io.weight, io.bfq.weight and
// io.latency. The settings of a class apply to all its work together, so Decide
// sets them in the contention roots of the class. Each root gets an equal part
// of the limits, and all work below the root shares that part. On cgroup v1 a
// limit bounds only the tasks directly in its cgroup, so Decide sets limits in
// every cgroup of the class. No limit exceeds the one before Tenon's first
// write. The settings of a single workload apply in addition, in its own
// cgroup.
func Decide(c Config, s node.Snapshot) []plan.Want {
	var wants []plan.Want
	for _, class := range node.Classes {
		if blocks := c.Classes[class]; len(blocks) > 0 {
			x := ioClass{class: class, who: fmt.Sprintf("all %s work together", class), Layout: facts.LayoutFor(class, s), snap: s}
			x.resolve(blocks)
			wants = append(wants, x.wants()...)
		}
	}
	for i := range s.Workloads {
		if w := &s.Workloads[i]; len(w.Overrides.IO) > 0 {
			wants = addOwnIO(wants, i, blocksOf(*w), s)
		}
	}
	return wants
}

// blocksOf returns the settings from the annotations of a workload.
func blocksOf(w node.Workload) []Device {
	blocks := make([]Device, len(w.Overrides.IO))
	for i, b := range w.Overrides.IO {
		blocks[i] = Device(b)
	}
	return blocks
}

// addOwnIO adds the requested values (wants) for the settings of one workload
// (blocks). If a knob already has a want, addOwnIO merges the two.
func addOwnIO(wants []plan.Want, i int, blocks []Device, s node.Snapshot) []plan.Want {
	w := s.Workloads[i]
	at := map[node.Knob]int{}
	for j, want := range wants {
		at[want.Knob] = j
	}
	x := ioClass{class: w.Class, who: string(w.ID), Layout: facts.LayoutOfOne(i, s), snap: s}
	x.prior = func(k node.Knob) (plan.Want, bool) {
		j, said := at[k]
		if !said || wants[j].Intent != plan.Set {
			return plan.Want{}, false
		}
		return wants[j], true
	}
	x.resolve(blocks)
	for _, own := range x.wants() {
		if j, said := at[own.Knob]; said {
			wants[j] = own
			continue
		}
		wants = append(wants, own)
	}
	return wants
}

// An ioClass decides the block I/O of one class, or of one workload alone.
type ioClass struct {
	facts.Layout
	class node.Class
	who   string // the class or workload, for reasons
	snap  node.Snapshot
	// prior returns the want of a class that sets a knob. The function prior is
	// nil if the ioClass is itself a class.
	prior func(node.Knob) (plan.Want, bool)
	// limits, weights and latency hold the requested value of each device. They
	// also hold the reasons why Tenon cannot meet some requests.
	limits  requested[node.IOLimits]
	weights map[node.File]*requested[unit.Percent]
	latency requested[time.Duration]
}

// requested holds the requested value for each device, for one kind of knob.
type requested[T any] struct {
	of      map[unit.Device]T
	names   map[unit.Device]string
	missing []string
}

func (a requested[T]) nothing() bool { return len(a.of) == 0 && len(a.missing) == 0 }

// add records the requested value of a device. If there is already one, the
// function pick chooses one of the two values.
func (a *requested[T]) add(d Target, v T, pick func(a, b T) T) {
	if a.of == nil {
		a.of, a.names = map[unit.Device]T{}, map[unit.Device]string{}
	}
	if other, twice := a.of[d.ID]; twice {
		v = pick(v, other)
	}
	a.of[d.ID], a.names[d.ID] = v, d.Name
}

// sentences returns one sentence for each device, ordered by device number. The
// function say makes each sentence.
func (a requested[T]) sentences(say func(v T, name string) string) []string {
	var s []string
	for _, d := range sortedDevices(a.of) {
		s = append(s, say(a.of[d], a.names[d]))
	}
	return s
}

func (x *ioClass) resolve(blocks []Device) {
	x.weights = map[node.File]*requested[unit.Percent]{node.FileIOWeight: {}, node.FileBFQWeight: {}}
	for _, b := range blocks {
		targets, why := Targets(b, x.snap.Devices)
		if b.limited() {
			x.limits.missing = append(x.limits.missing, why...)
		}
		if b.Latency > 0 {
			x.latency.missing = append(x.latency.missing, why...)
		}
		if b.weighted() {
			x.refuseWeights(why...)
		}
		for _, d := range targets {
			if b.limited() {
				x.limits.add(d, partOf(b.limits(), len(targets)), node.IOLimits.Smaller)
			}
			if b.Latency > 0 {
				x.latency.add(d, b.Latency, func(a, b time.Duration) time.Duration { return min(a, b) })
			}
			switch {
			case !b.weighted():
			case d.weighs == "":
				x.refuseWeights("nothing weighs I/O on " + d.Name + ": neither iocost nor the scheduler bfq is on there")
			default:
				x.weights[d.weighs].add(d, b.WeightPercent, func(a, b unit.Percent) unit.Percent { return min(a, b) })
			}
		}
	}
}

// refuseWeights records the reasons why a weight cannot be set.
func (x *ioClass) refuseWeights(why ...string) {
	file := node.FileIOWeight
	if x.snap.Knobs.Kernel.CgroupVersion == 1 {
		file = node.FileBFQWeight
	}
	x.weights[file].missing = append(x.weights[file].missing, why...)
}

func (x *ioClass) wants() []plan.Want {
	var wants []plan.Want
	if !x.limits.nothing() {
		groups, n := x.limitedGroups()
		for _, p := range groups {
			wants = append(wants, x.limitWant(p, n))
		}
	}
	for _, f := range []node.File{node.FileIOWeight, node.FileBFQWeight} {
		for _, m := range x.Roots {
			if a := x.weights[f]; !a.nothing() {
				wants = append(wants, x.weightWant(m, f, *a))
			}
		}
	}
	for _, m := range x.Roots {
		if !x.latency.nothing() {
			wants = append(wants, x.latencyWant(m))
		}
	}
	return append(wants, x.releaseShared()...)
}

// limitWant returns the want for the limits of the cgroup p. The limits of the
// class are divided among n cgroups.
func (x *ioClass) limitWant(p node.CgroupPath, n int) plan.Want {
	w := x.want(p, node.FileIOMax)
	own, _ := x.valueWithout(w.Knob).(node.IOMax)
	now, _ := x.snap.Knobs.Now[w.Knob].(node.IOMax)
	lines := linesOf(x, w.Knob, own.Limits(), now.Limits())
	for d, l := range x.limits.of {
		before, had := lines[d]
		if !had {
			before = node.NoIOLimits
		}
		lines[d] = before.Smaller(partOf(l, n))
	}
	reasons := x.limits.sentences(func(l node.IOLimits, name string) string {
		s := fmt.Sprintf("%s gets %v of %s", x.who, l, name)
		if n > 1 {
			s += fmt.Sprintf(", in %d equal parts", n)
		}
		return s
	})
	return x.settle(w, node.IOMaxOf(lines), reasons, x.limits.missing)
}

func (x *ioClass) weightWant(m node.CgroupPath, f node.File, a requested[unit.Percent]) plan.Want {
	w := x.want(m, f)
	own, _ := x.valueWithout(w.Knob).(node.IOWeight)
	now, _ := x.snap.Knobs.Now[w.Knob].(node.IOWeight)
	lines := linesOf(x, w.Knob, own.Weights(), now.Weights())
	for d, p := range a.of {
		before, had := lines[d]
		if !had {
			before = own.Default
		}
		lines[d] = max(before*int64(p)/100, 1)
	}
	by := map[node.File]string{node.FileIOWeight: "iocost", node.FileBFQWeight: "bfq"}[f]
	reasons := a.sentences(func(p unit.Percent, name string) string {
		return fmt.Sprintf("%s has %v of its weight on %s, by %s%s", x.shortName(), p, name, by, x.Reach(m))
	})
	return x.settle(w, node.IOWeightOf(own.Default, lines), reasons, a.missing)
}

func (x *ioClass) latencyWant(m node.CgroupPath) plan.Want {
	w := x.want(m, node.FileIOLatency)
	own, _ := x.valueWithout(w.Knob).(node.IOLatency)
	now, _ := x.snap.Knobs.Now[w.Knob].(node.IOLatency)
	lines := linesOf(x, w.Knob, own.Targets(), now.Targets())
	for d, t := range x.latency.of {
		if before, had := lines[d]; !had || t < before {
			lines[d] = t
		}
	}
	reasons := x.latency.sentences(func(t time.Duration, name string) string {
		return fmt.Sprintf("other work yields while I/O of %s on %s takes longer than %v", x.shortName(), name, t)
	})
	return x.settle(w, node.IOLatencyOf(lines), reasons, x.latency.missing)
}

// valueWithout returns the value that a knob would have if x had no settings.
func (x *ioClass) valueWithout(k node.Knob) node.Value {
	if x.prior != nil {
		if w, said := x.prior(k); said {
			return w.Value
		}
	}
	return facts.Original(x.snap.Knobs, k)
}

// linesOf returns the lines that a knob would have if x had no settings. If an
// earlier want sets the knob, before holds the lines of that want, and linesOf
// returns them all. Otherwise it drops the lines of removed devices.
func linesOf[T any](x *ioClass, k node.Knob, before, now map[unit.Device]T) map[unit.Device]T {
	if x.prior != nil {
		if _, said := x.prior(k); said {
			return before
		}
	}
	return existingLines(before, now)
}

// shortName returns a short name of the work of x, for reasons.
func (x *ioClass) shortName() string {
	if x.prior != nil {
		return x.who
	}
	return string(x.class)
}

func (x *ioClass) want(p node.CgroupPath, f node.File) plan.Want {
	return plan.Want{Knob: node.Knob{Cgroup: p, File: f}, Owner: plan.OwnerIO, BE: x.class == node.BE}
}

// settle completes w. The want abstains while the present value of the knob is
// unknown. If there are reasons, it sets v. Otherwise it releases a knob that
// Tenon has changed, once the list of devices is known.
func (x *ioClass) settle(w plan.Want, v node.Value, reasons, missing []string) plan.Want {
	if x.prior != nil {
		if before, said := x.prior(w.Knob); said {
			reasons = append([]string{before.Reason}, reasons...)
		}
	}
	_, touched := x.snap.Knobs.Before[w.Knob]
	_, known := x.snap.Knobs.Now[w.Knob]
	w.Intent, w.Reason = plan.Abstain, strings.Join(append(reasons, missing...), "; ")
	switch {
	case !known:
		w.Reason = fmt.Sprintf("the io controller is not enabled in %s: it has no %s", w.Knob.Cgroup, w.Knob.File)
		if a := x.snap.Capabilities[node.Feature(w.Knob.File)]; a.Verdict == node.No {
			w.Reason = fmt.Sprintf("no %s here: %s", w.Knob.File, a.Why)
		}
	case len(reasons) > 0:
		w.Intent, w.Value = plan.Set, v
	case touched && len(x.snap.Devices) > 0:
		w.Intent = plan.Release
	}
	return w
}

// releaseShared returns the wants that undo Tenon's changes of cgroups which
// several classes share: a limit there would also limit work of other classes.
func (x *ioClass) releaseShared() []plan.Want {
	var wants []plan.Want
	for _, p := range x.Shared {
		if x.IsRoot(p) {
			continue
		}
		for _, f := range Owned {
			w := x.want(p, f)
			if _, touched := x.snap.Knobs.Before[w.Knob]; touched {
				w.Intent, w.Reason = plan.Release, "a limit here would also limit work of other classes"
				wants = append(wants, w)
			}
		}
	}
	return wants
}
