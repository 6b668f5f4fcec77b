package launch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/model/node"
)

// A run is one command in execution, with its cgroup.
type run struct {
	*Launcher
	Command
	workload node.Workload
	process  *os.Process
	caught   <-chan os.Signal
	made     bool // this run has created the group
}

// enter creates the group, sets its knobs, and moves the waiting gate into it.
func (r *run) enter(ctx context.Context) error {
	back := r.stepAside()
	defer back()
	unlock, err := r.lock(ctx, 0)
	if err != nil {
		return err
	}
	defer unlock()
	group := string(r.workload.Cgroup)
	if r.Tree.Exists(group) {
		pids, err := r.members()
		if err != nil {
			return err
		}
		if len(pids) > 0 {
			return fmt.Errorf("cgroup %s is in use by %s: choose another --name", group, list(pids))
		}
		// A killed launcher left the cgroup, and its command has ended.
		if err := r.removeTree(group); err != nil {
			return err
		}
	}
	if err := r.Host.MakeGroup(r.workload.Cgroup); err != nil {
		return err
	}
	r.made = true
	r.Host.Manage(r.workload)
	// The cgroup gets its knobs before the process enters it.
	if err := r.Tick(ctx); err != nil {
		return err
	}
	return r.Host.Attach(r.workload.Cgroup, r.process.Pid)
}

// leave removes the run's cgroup. If no other run uses the parent (the group of
// the class), leave removes it, too.
func (r *run) leave() error {
	if !r.made {
		return nil
	}
	back := r.stepAside()
	defer back()
	unlock, err := r.lock(context.Background(), lingerQuiet)
	if err != nil {
		return fmt.Errorf("remove cgroup %s: %w: run tenon restore later", r.workload.Cgroup, err)
	}
	defer unlock()
	r.Host.Forget(r.workload.ID)
	if err := r.removeTree(string(r.workload.Cgroup)); err != nil {
		return fmt.Errorf("%w: see what is in it, then run tenon restore", err)
	}
	top := r.workload.ContentionRoot
	if children, err := r.Tree.Children(string(top)); err != nil || len(children) > 0 {
		return nil // the parent is gone, or other commands use it
	}
	if err := r.Host.RemoveGroup(top); err != nil && !errors.Is(err, syscall.EBUSY) {
		return err
	}
	return nil
}

// removeTree removes a group. It first removes the groups that the command has
// created inside it.
func (r *run) removeTree(group string) error {
	children, err := r.Tree.Children(group)
	errs := []error{ignoreGone(err)}
	for _, c := range children {
		errs = append(errs, r.removeTree(group+"/"+c))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return r.Host.RemoveGroup(node.CgroupPath(group))
}

// members lists the processes in and below the run's cgroup. If it cannot list
// all of them, it returns the others and an error.
func (r *run) members() ([]int, error) { return r.below(string(r.workload.Cgroup)) }

func (r *run) below(group string) ([]int, error) {
	pids, err := r.Tree.Procs(group)
	if err != nil {
		return nil, err
	}
	children, err := r.Tree.Children(group)
	errs := []error{ignoreGone(err)}
	for _, c := range children {
		more, err := r.below(group + "/" + c)
		pids, errs = append(pids, more...), append(errs, ignoreGone(err))
	}
	return pids, errors.Join(errs...)
}

// ignoreGone returns nil in place of the error of a group that was removed
// meanwhile.
func ignoreGone(err error) error {
	if errors.Is(err, cgroup.ErrGone) {
		return nil
	}
	return err
}

// list returns process ids as text, such as "pids 12, 13, 14 and 5 more".
func list(pids []int) string {
	const most = 5
	if len(pids) == 1 {
		return fmt.Sprintf("pid %d", pids[0])
	}
	var words []string
	for _, p := range pids[:min(most, len(pids))] {
		words = append(words, fmt.Sprint(p))
	}
	s := "pids " + strings.Join(words, ", ")
	if more := len(pids) - most; more > 0 {
		s += fmt.Sprintf(" and %d more", more)
	}
	return s
}
