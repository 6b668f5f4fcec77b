// Package watchdog narrows best-effort work when the daemon dies or hangs. It
// runs in a process of its own, and knows from the lease of the daemon what to
// write.
package watchdog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/lease"
	"tenon.sh/tenon/internal/model/node"
)

// Run is the watchdog process. It narrows best-effort work if the daemon with
// the lease in stateDir stops renewing the lease. When the lease is removed,
// Run returns or, if stay is true, waits for the next lease. last is
// lease.Options.Last. When ctx ends, Run returns the error of ctx.
func Run(ctx context.Context, stateDir string, stay, last bool, log *slog.Logger) (err error) {
	if err := lease.Steady(); err != nil {
		log.Warn("the watchdog may be late on a node that is full", "error", err)
	}
	fs := proc.Default()
	boot, err := fs.BootID()
	if err != nil {
		return err
	}
	h, err := host.Open(host.Options{FS: fs, JournalDir: stateDir})
	if err != nil {
		return err
	}
	w := watchdog{stateDir: stateDir, host: h, log: log, release: h.Isolation().ReleaseExt}
	defer func() { err = errors.Join(err, w.close()) }()
	removed := lease.WatchRemovals(ctx, stateDir)
	for {
		for stay && !lease.Exists(stateDir) {
			if err := pause(ctx); err != nil {
				return err
			}
		}
		err = lease.Watch(ctx, lease.Options{
			Dir: stateDir, Boot: boot, Kernel: h.Kernel(), Read: w.read, Apply: w.apply, Last: last, Removed: removed, Log: log,
		})
		if err != nil && !errors.Is(err, lease.ErrHeld) || !stay {
			return err
		}
		if err = pause(ctx); err != nil { // the lease was removed, or another watchdog guards it
			return err
		}
	}
}

// pause waits for the time between two renewals of the lease.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(lease.Renewal):
		return nil
	}
}

// A watchdog reads knobs through a host of its own. It writes through another
// host, whose journal entries contain the identity of the stopped daemon. So
// the next daemon takes over the knobs.
type watchdog struct {
	stateDir string
	host     *host.Host
	behalf   *host.Host // nil: the watchdog has not written yet
	log      *slog.Logger

	release func(node.CgroupPath) (int, error) // moves threads back to the fair class
	owed    map[node.CgroupPath]bool           // cgroups with threads that could not be moved back
}

// read reads a knob after the lease has expired. It also tries again what enforce could not do.
func (w *watchdog) read(k node.Knob) (node.Value, uint64, error) {
	v, err := w.host.Knob(k)
	if err == nil {
		var inode uint64
		if inode, err = w.host.Inode(k.Cgroup); err == nil && w.owed[k.Cgroup] {
			err = w.enforce(k.Cgroup)
		}
		if err == nil {
			return v, inode, nil
		}
	}
	if errors.Is(err, cgroup.ErrGone) {
		err = fmt.Errorf("%w: %w", lease.ErrGone, err)
	}
	return nil, 0, err
}

func (w *watchdog) apply(ctx context.Context, of lease.Holder, s plan.Step) error {
	session := journal.Session{PID: of.PID, Start: of.Start}
	if w.behalf == nil || w.behalf.Session() != session {
		h, err := host.Open(host.Options{JournalDir: w.stateDir, Behalf: &session})
		if err != nil {
			return err
		}
		if w.behalf != nil {
			_ = w.behalf.Close()
		}
		w.behalf = h
	}
	err := w.behalf.Apply(ctx, s)
	if err == nil && s.Knob.File == node.FileCPUMax {
		err = w.enforce(s.Knob.Cgroup)
	}
	if errors.Is(err, cgroup.ErrGone) {
		err = fmt.Errorf("%w: %w", lease.ErrGone, err)
	}
	return err
}

// enforce makes the CPU quota of a cgroup effective: it moves the threads of the
// cgroup from sched_ext to the fair class. The kernel applies no quota to
// threads of sched_ext, and their scheduler knows only the last quota from
// tenond. If enforce fails, the next read of the knob tries again.
func (w *watchdog) enforce(p node.CgroupPath) error {
	n, err := w.release(p)
	if n > 0 {
		w.log.Warn("threads were moved to the kernel's fair class, where the quota limits them", "cgroup", p, "threads", n)
	}
	if delete(w.owed, p); err != nil {
		if w.owed == nil {
			w.owed = map[node.CgroupPath]bool{}
		}
		w.owed[p] = true
	}
	return err
}

func (w *watchdog) close() error {
	err := w.host.Close()
	if w.behalf != nil {
		err = errors.Join(err, w.behalf.Close())
	}
	return err
}
