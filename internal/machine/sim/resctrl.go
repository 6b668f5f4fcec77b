package sim

import (
	"fmt"
	"io/fs"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/model/node"
)

// Resctrl describes a machine that can divide its L3 caches or its memory bandwidth.
type Resctrl struct {
	// Groups is the maximum number of control groups, including the default group.
	Groups int
	// Ways describes the ways of the L3 caches. If it has no Domains, the
	// caches cannot be divided.
	Ways node.CacheWays
	// MB describes the granularity of memory bandwidth. MBDomains are the
	// caches whose bandwidth can be divided.
	MB        node.Bandwidth
	MBDomains []node.CacheID
	MBPerCore bool // the lowest limit among the threads of a core holds for all; only with percent
}

// A control is a control group with the resources that its tasks may use.
type control struct {
	l3, mb map[node.CacheID]uint64
	mine   bool // Apply made it
}

// A resctrlState is the state of resctrl on a simulated node.
type resctrlState struct {
	Resctrl
	groups map[string]*control
	status string // content of last_cmd_status
	rules  []controlRule
}

func newDivided(r Resctrl, without []string) *resctrlState {
	d := &resctrlState{Resctrl: r, groups: map[string]*control{}, status: "ok"}
	d.rules = slices.DeleteFunc(controlRules(), func(r controlRule) bool { return slices.Contains(without, r.name) })
	d.groups[node.DefaultControlGroup] = d.newGroup()
	return d
}

// newGroup returns a control group that may use all resources.
func (d *resctrlState) newGroup() *control {
	c := &control{l3: map[node.CacheID]uint64{}, mb: map[node.CacheID]uint64{}}
	for _, id := range d.Ways.Domains {
		c.l3[id] = d.Ways.Mask
	}
	for _, id := range d.MBDomains {
		c.mb[id] = d.MB.Most
	}
	return c
}

func (c *control) clone() *control {
	return &control{l3: maps.Clone(c.l3), mb: maps.Clone(c.mb), mine: c.mine}
}

// A controlOp is an operation on resctrl that rules can refuse.
type controlOp struct {
	n     *Node
	kind  string // make, schemata, tasks
	group string
	text  string
}

// askControls returns the error of the first rule that refuses an operation, or
// nil. It also stores the message of that rule, which last_cmd_status shows.
func (n *Node) askControls(o controlOp) error {
	d := n.divided
	for _, r := range d.rules {
		if r.on != o.kind || r.refuse == nil {
			continue
		}
		if errno, status := r.refuse(o); errno != 0 {
			d.status = status
			return errno
		}
	}
	d.status = "ok"
	return nil
}

// applies reports whether the rule with this name is in effect on the node.
func (d *resctrlState) applies(name string) bool {
	return slices.ContainsFunc(d.rules, func(r controlRule) bool { return r.name == name })
}

// MakeControl creates a control group.
func (n *Node) MakeControl(group string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.makeControl(group)
}

func (n *Node) makeControl(group string) error {
	if err := n.askControls(controlOp{n: n, kind: "make", group: group}); err != nil {
		return &fs.PathError{Op: "mkdir", Path: group, Err: err}
	}
	c := n.divided.newGroup()
	if !n.divided.applies(newHasAll) {
		c.l3, c.mb = map[node.CacheID]uint64{}, map[node.CacheID]uint64{}
	}
	n.divided.groups[group] = c
	return nil
}

// RemoveControl removes a control group. If it does not exist, nothing happens.
func (n *Node) RemoveControl(group string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.removeControl(group)
	return nil
}

func (n *Node) removeControl(group string) {
	delete(n.divided.groups, group)
	for _, t := range n.tasks {
		if t.control == group && n.divided.applies(goBack) {
			t.control = ""
		}
	}
}

// ReadControl reads a file of a control group.
func (n *Node) ReadControl(group, file string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	d := n.divided
	c := d.groups[group]
	switch {
	case file == "info/last_cmd_status":
		return d.status + "\n", nil
	case file == "info/MB/thread_throttle_mode" && d.applies(saysMode) && d.MB.Unit == node.BandwidthPercent:
		return map[bool]string{true: "max\n", false: "per-thread\n"}[d.MBPerCore], nil
	case c != nil && file == "schemata":
		return c.schemata(), nil
	case c != nil && file == "tasks":
		return n.tasksOf(group), nil
	}
	return "", &fs.PathError{Op: "read", Path: group + "/" + file, Err: syscall.ENOENT}
}

func (c *control) schemata() string {
	text := ""
	if len(c.mb) > 0 {
		text += "MB:" + node.MBOf(c.mb).Schema + "\n"
	}
	if len(c.l3) > 0 {
		text += "L3:" + node.L3Of(c.l3).Schema + "\n"
	}
	return text
}

func (n *Node) tasksOf(group string) string {
	var b strings.Builder
	for _, pid := range slices.Sorted(maps.Keys(n.tasks)) {
		t := n.tasks[pid]
		if t.control == group || group == node.DefaultControlGroup && (t.control == "" || !n.divided.applies(inOne)) {
			fmt.Fprintln(&b, pid)
		}
	}
	return b.String()
}

// WriteControl writes a file of a control group.
func (n *Node) WriteControl(group, file, text string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.writeControl(group, file, text)
}

func (n *Node) writeControl(group, file, text string) error {
	c := n.divided.groups[group]
	err := error(syscall.ENOENT)
	if c != nil && (file == "schemata" || file == "tasks") {
		err = n.askControls(controlOp{n: n, kind: file, group: group, text: text})
	}
	if err != nil {
		return &fs.PathError{Op: fmt.Sprintf("write %q to", text), Path: group + "/" + file, Err: err}
	}
	if file == "tasks" {
		pid, _ := strconv.Atoi(strings.TrimSpace(text))
		if t := n.tasks[pid]; t != nil {
			if t.control = group; group == node.DefaultControlGroup {
				t.control = ""
			}
		}
		return nil
	}
	resource, values := schemataLine(text)
	by := c.l3
	if resource == "MB" {
		by = c.mb
	}
	if !n.divided.applies(keepsOthers) {
		clear(by)
	}
	for _, v := range values {
		x, _ := v.number(resource)
		if resource == "MB" && n.divided.applies(roundsUp) {
			x = n.divided.MB.Round(x)
		}
		by[v.id] = x
	}
	return nil
}

// A schemataValue is the part of a schemata line for one cache.
type schemataValue struct {
	id   node.CacheID
	text string
}

func (v schemataValue) number(resource string) (uint64, error) {
	base := 16
	if resource == "MB" {
		base = 10
	}
	return strconv.ParseUint(v.text, base, 64)
}

func schemataLine(text string) (resource string, values []schemataValue) {
	resource, list, _ := strings.Cut(strings.TrimSpace(text), ":")
	for part := range strings.SplitSeq(list, ";") {
		id, value, _ := strings.Cut(part, "=")
		n, err := strconv.Atoi(id)
		if err != nil {
			n = -1
		}
		values = append(values, schemataValue{node.CacheID(n), value})
	}
	return resource, values
}

// neighbours reports whether the bits that are set in a mask are consecutive.
func neighbours(mask uint64) bool {
	return mask == 0 || mask>>bits.TrailingZeros64(mask) == 1<<bits.OnesCount64(mask)-1
}
