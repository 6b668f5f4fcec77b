package daemon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/agent/workers"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/shadow"
	"tenon.sh/tenon/internal/kernel/mounts"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/lease"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
)

var (
	// errInForce means that a daemon cannot observe the node as it is without Tenon.
	errInForce = errors.New("this node has settings of Tenon")
	// errMustObserve means that whoever started this daemon saw another configuration, or
	// none, and has left it the means to write.
	errMustObserve = errors.New("tenond has started in order to act, and its configuration asks it to observe")
	// errObserves is the answer to a request that would change something.
	errObserves = errors.New("this tenond observes and changes nothing")
)

// openObserved opens the node for a daemon that writes nothing to it: without a journal,
// a lease and a watchdog.
func (d *daemon) openObserved(ctx context.Context, fs proc.FS) (err error) {
	if err := refuseInForce(d.StateDir, fs, d.Kubernetes != nil); err != nil {
		return err
	}
	if err := statedir.Make(observerDir(d.StateDir)); err != nil {
		return err
	}
	if d.host, err = host.Open(host.Options{Tree: d.tree, FS: fs, JournalDir: observerDir(d.StateDir), Resident: true}); err != nil {
		return err
	}
	if d.watcher, err = d.tree.Watch(ctx); err != nil {
		return err
	}
	d.shadow = new(shadow.World)
	d.warnIfWritable(fs)
	d.Log.Info("observing: tenond decides and writes nothing")
	return nil
}

// observerDir returns the folder for the files of a state directory that one who observes
// must not share with one who acts: the peaks that it has learnt, and the journal, which
// stays empty. The journal of the state directory belongs to the commands that write.
func observerDir(stateDir string) string { return filepath.Join(stateDir, "observe") }

// refuseInForce returns errInForce if the journal in a directory has changes: of an
// earlier tenond, which no observer would put back, or of a Tenon that runs. The node
// would not be seen as it is without Tenon. In a cluster, a release of Helm has probably
// changed from manage to observe: then the other nodes have changes, too, and what
// removes them went with that release.
func refuseInForce(dir string, fs proc.FS, inCluster bool) error {
	boot, err := fs.BootID()
	if err != nil {
		return err
	}
	j, err := journal.Open(dir, boot, journal.Session{})
	if err != nil {
		return err
	}
	s, err := j.State()
	if err = errors.Join(err, j.Close()); err != nil {
		return fmt.Errorf("observe: %w", err)
	}
	if s.Empty() {
		return nil
	}
	agent, manages := lease.IsHeld(dir)
	var working []string
	for _, by := range change.Living(fs, s) {
		switch {
		case by.Lab:
			working = append(working, fmt.Sprintf("an experiment of tenon lab (process %d)", by.PID))
		case !manages || by.PID != agent:
			working = append(working, fmt.Sprintf("tenon run (process %d)", by.PID))
		}
	}
	err = fmt.Errorf("observe: %w", errInForce)
	switch {
	case len(working) > 0:
		return fmt.Errorf("%w: %s changes it: wait until that has ended, or end it, and start tenond again", err, strings.Join(working, ", and "))
	case inCluster:
		return fmt.Errorf("%w: if this release managed the nodes before, run helm rollback and then helm uninstall, which puts them back on all nodes, and install it again; for this node only, run tenon restore on it", err)
	case manages:
		return fmt.Errorf("%w: tenond (process %d) manages it: stop that one (systemctl stop tenond), run tenon restore --state-dir %s, and start this one again", err, agent, dir)
	}
	return fmt.Errorf("%w, and no Tenon runs: run tenon restore --state-dir %s, which puts them back, and start tenond again", err, dir)
}

// setConfig takes the content of the configuration file. Whether this daemon observes
// stays as it was at the start: a daemon that acts has a journal and a lease.
func (d *daemon) setConfig(c config.Config) {
	if d.Observe && c.History.Directory == "" {
		c.History.Directory = config.HistoryDirectory
	}
	text := ""
	if c.Observe && !d.Observe {
		text = "the key observe is not in force: this tenond acts. To observe, stop it, run tenon restore, and then tenond install if it is a service"
		if d.Kubernetes != nil {
			text = "the key observe is not in force: this tenond acts, and the next one would not start. The mode of the chart decides: take the key out of agent.config"
		}
	}
	d.health.Set(health.Config, "observe", text)
	d.config = c
}

// An onlooker refuses all requests that would change something.
type onlooker struct{ *workers.Desk }

// Pin implements control.Operator.
func (onlooker) Pin(context.Context, node.Mechanism) error { return errObserves }

// Handle implements control.Operator.
func (o onlooker) Handle(mux *http.ServeMux) { o.Show(mux, errObserves) }

// warnIfWritable logs the control file systems that this process could write: then only
// its own code keeps it from that.
func (d *daemon) warnIfWritable(fs proc.FS) {
	all, err := mounts.Read(fs.Proc, "cgroup", "cgroup2", "resctrl")
	if err != nil {
		d.Log.Warn("cannot find out whether the kernel refuses all writes", "error", err)
	}
	for _, m := range all {
		var s unix.Statfs_t
		if err := unix.Statfs(m.Point, &s); err != nil {
			d.Log.Warn("cannot find out whether the kernel refuses writes to this mount", "mount", m.Point, "error", err)
		} else if s.Flags&unix.ST_RDONLY == 0 {
			d.Log.Warn("this mount is not read-only: tenond writes nothing there, but the kernel would let it", "mount", m.Point)
		}
	}
}
