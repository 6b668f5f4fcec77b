package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/cgroup"
	"tenon.sh/tenon/internal/host"
	"tenon.sh/tenon/internal/node"
	"tenon.sh/tenon/internal/policy"
	"tenon.sh/tenon/internal/proc"
	"tenon.sh/tenon/internal/task"
	"tenon.sh/tenon/internal/unit"
)

// A site is the machine with an experiment on it: its cgroups are the lab's,
// its CPUs are divided. Close leaves it as it was.
type site struct {
	setting  Setting
	status   *status
	host     *host.Host
	tree     *cgroup.Tree
	fs       proc.FS
	topology node.Topology
	// isolation is what was known of the rungs when the experiment began.
	isolation node.Isolation
	place     Placement

	undo []func() error // in reverse order
}

// enter clears up after labs that were killed, makes sure that no other one is
// at work, and divides the CPUs. It starts nothing.
func enter(ctx context.Context, c Setting) (_ *site, err error) {
	s := &site{setting: c, status: &status{w: c.Notices, terminal: c.Terminal}, fs: proc.Default()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if os.Geteuid() != 0 {
		return nil, errors.New("the experiment makes cgroups, which needs root: run it with sudo")
	}
	if len(s.setting.Self) == 0 {
		if s.setting.Self, err = self(); err != nil {
			return nil, err
		}
	}
	if s.tree, err = cgroup.Detect(s.fs.Proc); err != nil {
		return nil, err
	}
	if s.host, err = host.Open(host.Options{Tree: s.tree, JournalDir: c.JournalDir, Disposable: true}); err != nil {
		return nil, err
	}
	s.undo = append(s.undo, s.host.Close)
	s.host.Show(policy.Files(policy.Config{CPUQOS: pinned("")}, nil))
	if err := s.takeOver(ctx); err != nil {
		return nil, err
	}
	snapshot, err := s.host.Snapshot(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the node: %w", err)
	}
	s.topology, s.isolation = snapshot.Topology, snapshot.Isolation
	allowed, err := task.Affinity(0)
	if err != nil {
		return nil, err
	}
	s.place, err = Place(s.topology, allowed, c.CPUs, c.ClientCPUs)
	return s, err
}

// takeOver removes what a lab that was killed left behind, and makes sure
// that no other lab is at work.
func (s *site) takeOver(ctx context.Context) error {
	if _, err := s.host.RestoreDeadLabs(ctx); err != nil {
		return fmt.Errorf("clear up after an earlier experiment: %w", err)
	}
	sweep(os.TempDir())
	sweep(stateHome())
	root := s.setting.Root
	if s.tree.Exists(string(root)) {
		return fmt.Errorf("cgroup %s exists: another experiment is at work here; if not, run tenon restore", root)
	}
	s.undo = append(s.undo, func() error {
		err := clear(root, s.host, s.tree)
		_, restoreErr := s.host.RestoreOwn(context.Background())
		return errors.Join(err, restoreErr)
	})
	return nil
}

// groups makes the cgroups of children. Where the lab only sends load, it has
// none.
func (s *site) groups() groups {
	if s.host == nil {
		return noGroups{}
	}
	return s.host
}

type noGroups struct{}

func (noGroups) Attach(node.CgroupPath, int) error { return errors.New("there are no cgroups here") }
func (noGroups) Spawned(int) error                 { return nil }
func (noGroups) Reaped(int) error                  { return nil }

// child is the argv of this program in one of the roles of Child.
func (s *site) child(args ...string) []string {
	return append(append([]string{}, s.setting.Self...), args...)
}

// prefix begins the name of a directory of the lab; its process id follows.
const prefix = "tenon-lab-"

// directory makes a directory in dir (empty: that for temporary files) that
// goes with the site. Those of labs that were killed go at once.
func (s *site) directory(dir string) (string, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	sweep(dir)
	made, err := os.MkdirTemp(dir, fmt.Sprintf("%s%d-", prefix, os.Getpid()))
	if err != nil {
		return "", err
	}
	s.undo = append(s.undo, func() error { return os.RemoveAll(made) })
	return made, nil
}

// sweep removes the directories of labs that were killed.
func sweep(dir string) {
	dirs, _ := filepath.Glob(filepath.Join(dir, prefix+"*-*"))
	for _, dir := range dirs {
		id, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), prefix), "-")
		pid, err := strconv.Atoi(id)
		if err == nil && pid > 0 && errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			os.RemoveAll(dir)
		}
	}
}

// stepAside moves the lab's own threads to the client's CPUs. Threads that
// are made later follow their makers.
func (s *site) stepAside() error {
	before, err := task.Affinity(0)
	if err != nil {
		return err
	}
	s.undo = append(s.undo, func() error { return s.moveSelf(before) })
	return s.moveSelf(s.place.Client)
}

func (s *site) moveSelf(cpus unit.CPUSet) error {
	threads, err := s.fs.Threads(os.Getpid())
	if err != nil {
		return err
	}
	for _, tid := range threads {
		if err := task.SetAffinity(tid, cpus); err != nil {
			return fmt.Errorf("move the lab to CPUs %v: %w", cpus, err)
		}
	}
	return nil
}

// Close undoes what was done to the machine. It can be called again.
func (s *site) Close() error {
	s.status.Clear()
	var errs []error
	for len(s.undo) > 0 {
		last := len(s.undo) - 1
		errs = append(errs, s.undo[last]())
		s.undo = s.undo[:last]
	}
	return errors.Join(errs...)
}

// interrupted makes ctx's error of whatever its end has caused.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
