package conformance

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// Controls creates, removes, reads and writes control groups of resctrl, in the
// kernel's text format. For the default group (node.DefaultControlGroup), it
// also reads the files of the directory info.
type Controls interface {
	MakeControl(group string) error
	RemoveControl(group string) error
	ReadControl(group, file string) (string, error)
	WriteControl(group, file, text string) error
}

// A DividedNode is a node with resctrl in its snapshots.
type DividedNode interface {
	Node
	Controls
}

// A ControlFact is one property of a node with resctrl.
type ControlFact struct {
	Name string
	// Needs returns the reason why the fact does not apply to a machine, or ""
	// if it applies.
	Needs func(*ControlGroupBench) string
	Check func(*ControlGroupBench) error
}

// A ControlGroupBench is a Bench on a node with resctrl. It removes the control
// groups that the check creates.
type ControlGroupBench struct {
	*Bench
	Controls
	s    node.Snapshot
	made []string
}

// ControlFacts lists all facts about resctrl.
func ControlFacts() []ControlFact {
	return slices.Concat(schemataFacts(), controlGroupFacts(), divisionFacts())
}

// RunControls opens a node with the function open, and checks every fact on it.
// At the start, the node must have only the default control group.
func RunControls(t *testing.T, root node.CgroupPath, open func(*testing.T) DividedNode) {
	n := open(t)
	for _, f := range ControlFacts() {
		t.Run(f.Name, func(t *testing.T) {
			why, err := f.Verify(t.Context(), n, root)
			switch {
			case err != nil:
				t.Error(err)
			case why != "" && os.Getenv("TENON_TEST_STRICT") == "":
				t.Skip(why)
			case why != "":
				// This is not a skip, because strict tests allow no skips.
				// Another test reports what this machine lacks.
				t.Log("does not apply: " + why)
			}
		})
	}
}

// Verify checks the fact on node n. If the fact does not apply to n, Verify
// returns the reason.
func (f ControlFact) Verify(ctx context.Context, n DividedNode, root node.CgroupPath) (why string, err error) {
	err = Fact{Check: func(b *Bench) error {
		c := &ControlGroupBench{Bench: b, Controls: n}
		if c.s, err = n.Snapshot(ctx); err != nil {
			return err
		}
		if c.s.Resctrl.Missing != "" || c.s.Resctrl.Groups < 2 {
			why = fmt.Sprintf("%d control groups: %s", c.s.Resctrl.Groups, c.s.Resctrl.Missing)
			return nil
		}
		if f.Needs != nil {
			if why = f.Needs(c); why != "" {
				return nil
			}
		}
		return errors.Join(f.Check(c), c.remove())
	}}.Verify(ctx, n, root)
	return why, err
}

// remove removes the control groups that the check has created.
func (b *ControlGroupBench) remove() error {
	var errs []error
	for _, g := range b.made {
		errs = append(errs, b.RemoveControl(g))
	}
	return errors.Join(errs...)
}

// control creates a control group. The bench removes it at the end.
func (b *ControlGroupBench) control(name string) error {
	if err := b.MakeControl(name); err != nil {
		return fmt.Errorf("set up control group %s: %w", name, err)
	}
	b.made = append(b.made, name)
	return nil
}

// l3 returns the name of the L3 caches in schemata. If code and data have
// separate masks, it is the name for data.
func (b *ControlGroupBench) l3() string {
	if b.s.Resctrl.L3.Apart {
		return "L3DATA"
	}
	return "L3"
}

// line returns the values in one line of a group's schemata, without spaces.
func (b *ControlGroupBench) line(group, resource string) (string, error) {
	text, err := b.ReadControl(group, "schemata")
	for row := range strings.Lines(text) {
		name, values, _ := strings.Cut(strings.ReplaceAll(strings.TrimSpace(row), " ", ""), ":")
		if name == resource {
			return values, nil
		}
	}
	return "", errors.Join(err, fmt.Errorf("control group %s has no line %s in %q", group, resource, text))
}

// writeLine writes a line of schemata, which the kernel must accept. The file
// must show the text want afterwards.
func (b *ControlGroupBench) writeLine(group, resource, values, want string) error {
	if err := b.WriteControl(group, "schemata", resource+":"+values+"\n"); err != nil {
		return fmt.Errorf("write %s:%s to %s: must be accepted: %w", resource, values, group, err)
	}
	return b.mustRead(group, resource, want)
}

func (b *ControlGroupBench) mustRead(group, resource, want string) error {
	got, err := b.line(group, resource)
	if err == nil && got != want {
		err = fmt.Errorf("%s of %s reads %q, want %q", resource, group, got, want)
	}
	return err
}

// mustRefuseText checks that the kernel refuses a text with one of the errors in want.
// The file must stay the same, and last_cmd_status must contain the text status.
func (b *ControlGroupBench) mustRefuseText(group, file, text, status string, want ...error) error {
	before, err := b.ReadControl(group, file)
	if err != nil {
		return err
	}
	if err := mustFail(b.WriteControl(group, file, text), want...); err != nil {
		return fmt.Errorf("write %q to %s of %s: %w", text, file, group, err)
	}
	if after, _ := b.ReadControl(group, file); after != before {
		return fmt.Errorf("write %q to %s of %s was refused, yet changed %q to %q", text, file, group, before, after)
	}
	said, err := b.ReadControl(node.DefaultControlGroup, "info/last_cmd_status")
	if err == nil && !strings.Contains(said, status) {
		err = fmt.Errorf("write %q to %s of %s: the kernel says %q, want %q", text, file, group, said, status)
	}
	return err
}

// mustHold returns an error if a thread is not in a control group.
func (b *ControlGroupBench) mustHold(group string, tid int) error {
	text, err := b.ReadControl(group, "tasks")
	if err == nil && !slices.Contains(strings.Fields(text), fmt.Sprint(tid)) {
		err = fmt.Errorf("thread %d is not in control group %s", tid, group)
	}
	return err
}

// worker creates a cgroup with a task, and adds the cgroup to the snapshots as
// a workload of the class.
func (b *ControlGroupBench) worker(class node.Class) (pid int, forget func(), err error) {
	if pid, err = b.task(b.cgroup, unit.Bytes(0)); err != nil {
		return 0, nil, err
	}
	b.Manage(node.Workload{ID: "divided", Class: class, Cgroup: b.cgroup, ContentionRoot: b.cgroup})
	return pid, func() { b.Forget("divided") }, nil
}
