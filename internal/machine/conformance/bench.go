package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// A Bench is a node with an empty cgroup for the check of one fact. After the
// check, the Bench removes everything that the check created.
type Bench struct {
	Node
	ctx    context.Context
	kernel node.Kernel
	all    unit.CPUSet
	// cgroup is the cgroup for the fact. It exists before the check begins.
	cgroup node.CgroupPath
	groups []node.CgroupPath
	pids   []int
}

// Verify checks the fact on n, in a new cgroup "root/fact".
func (f Fact) Verify(ctx context.Context, n Node, root node.CgroupPath) (err error) {
	s, err := n.Snapshot(ctx)
	if err != nil {
		return fmt.Errorf("read the node: %w", err)
	}
	b := &Bench{Node: n, ctx: ctx, kernel: s.Knobs.Kernel, all: s.Topology.All(), cgroup: root.Join("fact")}
	defer func() { err = errors.Join(err, b.clean(root)) }()
	if err := b.group(b.cgroup); err != nil {
		return err
	}
	return f.Check(b)
}

func (b *Bench) clean(root node.CgroupPath) error {
	var errs []error
	for _, pid := range b.pids {
		_ = b.Stop(pid) // the task may be dead already
	}
	slices.Reverse(b.groups)
	for _, g := range append(b.groups, root) {
		if err := b.RemoveGroup(g); err != nil {
			errs = append(errs, fmt.Errorf("clean up: %w", err))
		}
	}
	return errors.Join(errs...)
}

// group creates a cgroup. The bench removes it at the end.
func (b *Bench) group(p node.CgroupPath) error {
	if err := b.MakeGroup(p); err != nil {
		return fmt.Errorf("set up %s: %w", p, err)
	}
	b.groups = append(b.groups, p)
	return nil
}

// child creates a cgroup below the cgroup of the fact.
func (b *Bench) child(name string) (node.CgroupPath, error) {
	p := b.cgroup.Join(name)
	return p, b.group(p)
}

// task starts a process in cgroup p. The bench stops it at the end.
func (b *Bench) task(p node.CgroupPath, memory unit.Bytes) (int, error) {
	pid, err := b.Start(p, memory)
	if err != nil {
		return 0, fmt.Errorf("set up a task in %s: %w", p, err)
	}
	b.pids = append(b.pids, pid)
	return pid, nil
}

// pick returns the first argument on cgroup v1 and the second on v2.
func (b *Bench) pick(v1, v2 string) string {
	if b.kernel.CgroupVersion == 1 {
		return v1
	}
	return v2
}

// set writes values that the kernel must accept. The arguments after p are
// pairs of a file name and its new text.
func (b *Bench) set(p node.CgroupPath, filesAndTexts ...string) error {
	for pair := range slices.Chunk(filesAndTexts, 2) {
		if err := b.WriteFile(p, pair[0], pair[1]); err != nil {
			return fmt.Errorf("write %s %q in %s: must be accepted: %w", pair[0], pair[1], p, err)
		}
	}
	return nil
}

// mustRefuse checks that the kernel refuses each text with one of the errors in
// want. If the file can be read, it must have its old content.
func (b *Bench) mustRefuse(p node.CgroupPath, file string, texts []string, want ...error) error {
	for _, text := range texts {
		before, readable := b.ReadFile(p, file)
		if err := mustFail(b.WriteFile(p, file, text), want...); err != nil {
			return fmt.Errorf("write %s %q in %s: %w", file, text, p, err)
		}
		after, _ := b.ReadFile(p, file)
		if readable == nil && before != after {
			return fmt.Errorf("write %s %q in %s was refused, yet changed the value from %q to %q", file, text, p, before, after)
		}
	}
	return nil
}

// mustShow checks that the file has the wanted content.
func (b *Bench) mustShow(p node.CgroupPath, file, want string) error {
	got, err := b.ReadFile(p, file)
	if err != nil {
		return fmt.Errorf("read %s in %s: %w", file, p, err)
	}
	if got = strings.TrimSpace(got); got != want {
		return fmt.Errorf("%s of %s reads %q, want %q", file, p, got, want)
	}
	return nil
}

// mustBecome writes a text, which the kernel must accept. The file must then show want.
func (b *Bench) mustBecome(p node.CgroupPath, file, text, want string) error {
	if err := b.set(p, file, text); err != nil {
		return err
	}
	return b.mustShow(p, file, want)
}

// mustFail checks that err is one of the errors in want.
func mustFail(err error, want ...error) error {
	if err == nil {
		return fmt.Errorf("accepted, want %s", names(want))
	}
	for _, w := range want {
		if errors.Is(err, w) {
			return nil
		}
	}
	return fmt.Errorf("refused with %w, want %s", err, names(want))
}

func names(errs []error) string {
	words := make([]string, 0, len(errs))
	for _, err := range errs {
		words = append(words, err.Error())
	}
	return strings.Join(words, " or ")
}

// manage adds cgroup p to the snapshots as a BE workload. The returned function removes it.
func (b *Bench) manage(p node.CgroupPath) func() {
	id := node.WorkloadID(p)
	b.Manage(node.Workload{ID: id, Class: node.BE, Cgroup: p, ContentionRoot: b.cgroup})
	return func() { b.Forget(id) }
}

// want plans and applies wants, as the agent does. Every step of the plan must succeed.
func (b *Bench) want(wants ...plan.Want) error {
	s, err := b.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	for _, st := range plan.Diff(s.Knobs, wants) {
		if err := b.Apply(b.ctx, st); err != nil {
			return fmt.Errorf("apply %v: %w", st, err)
		}
	}
	return nil
}

// checkSnapshot checks that a snapshot has the given value for a knob.
func (b *Bench) checkSnapshot(k node.Knob, want node.Value) error {
	s, err := b.Snapshot(b.ctx)
	if err != nil {
		return err
	}
	if got := s.Knobs.Now[k]; got != want {
		return fmt.Errorf("%v is %v in the snapshot, want %v", k, got, want)
	}
	return nil
}

// firstOf calls the checks in order, and returns the first error.
func firstOf(checks ...func() error) error {
	for _, check := range checks {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}
