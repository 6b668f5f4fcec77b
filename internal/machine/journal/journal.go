// Package journal records how Tenon has changed this machine since boot, so
// that every change can be undone. For each knob, it has the value before
// Tenon's first write and the last value that Tenon wrote. It also has the
// groups that Tenon created, and the processes that it started. With the
// journal, every knob can be restored without a daemon, even after kill -9.
//
// The journal is one file of JSON lines on tmpfs. Its name contains the boot
// id, because kernel state does not survive a reboot. Each line is one write(2)
// with O_APPEND. So a writer that dies leaves at most one incomplete line at
// the end, and readers skip it. Several processes share the file under
// flock(2), and no process waits long for the lock. There is no fsync: tmpfs
// has no disk, and a machine that loses its memory also loses its cgroups. If
// the file system becomes full, entries about known knobs go into space that
// was reserved before.
package journal

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
)

// DefaultDir is the directory of the journal on a real machine.
const DefaultDir = "/run/tenon"

// compactAbove is a size of the file in bytes. A larger file, most of whose
// lines are obsolete, is rewritten without them. A line has about 200 bytes,
// and each write of a knob adds two lines.
const compactAbove = 256 << 10

// A Session is one Tenon process. Each entry has the session that wrote it. So
// a restore can see whether the process still lives, and whether it belongs to
// the lab or to a user.
type Session struct {
	PID int `json:"pid"`
	// Start is the start time of the process, in nanoseconds after boot
	// (/proc/PID/stat). Together with PID it is unique, because a later process
	// with the same PID has another Start.
	Start int64 `json:"start"`
	// Lab says that the groups and processes of this session belong to the lab.
	// A restore may end them, but not those of users.
	Lab bool `json:"lab,omitempty"`
}

// A Journal is the shared file as one process sees it. It is safe for
// concurrent use.
type Journal struct {
	dir, path string
	session   Session

	mu    sync.Mutex
	lock  *os.File // nil until the first append
	queue statedir.Queue
	state State
	head  file
	read  fs.FileInfo // the file that state was read from; nil: none
	off   int64       // number of bytes of it that state contains
	size  int64       // of the file, with torn lines
	torn  bool        // the byte before off is not a newline
	lost  string      // how the file was damaged since it was read; empty: it was not
	// repaired describes damage that an entry has repaired. Repair returns it
	// once.
	repaired string
	work     Work
	changes  uint64 // how often state changed
}

// Work counts what this process has written to the journal.
type Work struct {
	Writes int   // number of writes to the file
	Bytes  int64 // number of bytes that they wrote, including compactions
}

// Work returns what this process has written to the journal up to now.
func (j *Journal) Work() Work {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.work
}

// Open returns the journal of the given boot in dir. It writes nothing: the
// first entry creates the directory and the file. It returns an error if another
// user can write to dir.
func Open(dir, bootID string, s Session) (*Journal, error) {
	if bootID == "" || bootID != filepath.Base(bootID) {
		return nil, fmt.Errorf("open journal in %s: boot id %q is not a name", dir, bootID)
	}
	if err := statedir.Check(dir); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	return &Journal{
		dir: dir, path: filepath.Join(dir, "journal-"+bootID+".jsonl"), session: s, state: newState(),
		queue: statedir.Queue{Path: filepath.Join(dir, lockName)},
	}, nil
}

// Path returns the path of the journal.
func (j *Journal) Path() string { return j.path }

// Session returns the session of the process that writes with this Journal.
func (j *Journal) Session() Session { return j.session }

// State returns the present state, including the entries of other processes. If
// the file does not exist, the state is empty.
func (j *Journal) State() (State, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	// A reader has no lock, so it may see the beginning of a line that another
	// process writes. It stops before this line, and the next load reads it.
	if err := j.load(); err != nil {
		return State{}, err
	}
	return j.state.clone(), nil
}

// Changes returns how often the state has changed, also by entries of other
// processes. While the number is the same, State returns the same.
func (j *Journal) Changes() (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	err := j.load()
	return j.changes, err
}

// Touch returns the entry of one knob, which another process may have written.
// The second result says whether there is one.
func (j *Journal) Touch(k node.Knob) (Touch, bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return Touch{}, false, err
	}
	t, touched := j.state.Touches[k]
	return t, touched, nil
}

// Touches reports whether any knob of one kind has an entry.
func (j *Journal) Touches(f node.File) (bool, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return false, err
	}
	for k := range j.state.Touches {
		if k.File == f {
			return true, nil
		}
	}
	return false, nil
}

// Intend records that Tenon is about to write the knob k of the cgroup with
// this inode. If the knob of this cgroup has no entry yet, Intend also records
// the value to restore, which is the argument before.
func (j *Journal) Intend(k node.Knob, inode uint64, before, value node.Value) error {
	return j.append(func(s State) *entry { return s.intend(Intention{k, inode, before, value}) })
}

// RecordValue records the value that the kernel shows after the write.
func (j *Journal) RecordValue(k node.Knob, value node.Value) error {
	return j.append(func(State) *entry { return &entry{Op: opWrote, Knob: &k, Value: value.String()} })
}

// Abandon records that the kernel refused the intended value and that the knob
// stayed the same. If no write of the knob has ever succeeded, Abandon removes
// the knob from the journal.
func (j *Journal) Abandon(k node.Knob) error {
	return j.append(func(s State) *entry { return s.abandon(k) })
}

// Forget deletes the entry of the knob k, because Tenon does not manage the
// knob any more.
func (j *Journal) Forget(k node.Knob) error {
	return j.append(func(s State) *entry { return s.forget(k) })
}

// Rebase changes the value to restore for the knob k. The new value is what the
// knob's owner would have written by now, for example the kubelet after a
// resize of a pod. If the knob has no entry, Rebase does nothing.
func (j *Journal) Rebase(k node.Knob, before node.Value) error {
	return j.append(func(s State) *entry {
		if t, touched := s.Touches[k]; !touched || t.Before == before {
			return nil
		}
		return &entry{Op: opRebase, Knob: &k, Value: before.String()}
	})
}

// RecordGroup records a cgroup that Tenon is about to create. Call it before
// the mkdir, so that every cgroup of Tenon has an entry.
func (j *Journal) RecordGroup(p node.CgroupPath) error {
	return j.append(func(State) *entry { return &entry{Op: opMade, Cgroup: p} })
}

// Removed deletes the entries of a cgroup that Tenon created, and the entries
// of the cgroup's knobs.
func (j *Journal) Removed(p node.CgroupPath) error {
	return j.append(func(s State) *entry {
		if !s.mentions(p) {
			return nil
		}
		return &entry{Op: opRemoved, Cgroup: p}
	})
}

// Spawned records a process that Tenon started, with its pid and its start time
// in nanoseconds after boot.
func (j *Journal) Spawned(p Process) error {
	return j.append(func(State) *entry { return &entry{Op: opSpawned, Process: &p} })
}

// Reaped deletes the entry of a process that has ended.
func (j *Journal) Reaped(p Process) error {
	return j.append(func(s State) *entry {
		if _, known := s.Processes[p]; !known {
			return nil
		}
		return &entry{Op: opReaped, Process: &p}
	})
}

// lockPatience is the time that a writer waits for the lock. Usually a writer
// holds the lock for some ten microseconds.
const lockPatience = 250 * time.Millisecond

// acquire takes the lock that all processes share. The lock is on a file of its
// own, because a compaction replaces the journal.
//
// A process may be stopped while it holds the lock. This must not stop other
// processes, least of all the watchdog, which works while the agent is stopped.
// Therefore, after lockPatience, the writer continues without the lock, and
// locked is false. The journal is also correct without the lock: each entry is
// one write(2) with O_APPEND, a second Intend for the same knob does not change
// the value to restore, and a process that compacts looks for entries that
// arrived meanwhile. A process without the lock compacts only if the file
// system is full.
func (j *Journal) acquire() (locked bool, err error) {
	if j.lock != nil && !statedir.IsCurrent(j.lock) {
		_ = j.lock.Close()
		j.lock = nil
	}
	if j.lock == nil {
		if err := statedir.Make(j.dir); err != nil {
			return false, err
		}
		j.removeOtherBoots()
		f, err := statedir.Open(j.queue.Path, os.O_RDWR|os.O_CREATE)
		if err != nil {
			return false, err
		}
		j.lock = f
	}
	if locked, err := statedir.TryLock(j.lock); locked || err != nil {
		return locked, err
	}
	ctx, stop := context.WithTimeout(context.Background(), lockPatience)
	defer stop()
	f, err := j.queue.Lock(ctx)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
		return false, err
	}
	_ = j.lock.Close()
	j.lock = f
	return true, nil
}

func (j *Journal) release() { _ = syscall.Flock(int(j.lock.Fd()), syscall.LOCK_UN) }

// removeOtherBoots deletes the journals of earlier boots. They remain if /run
// is not on tmpfs. It ignores errors, because no process reads these files.
func (j *Journal) removeOtherBoots() {
	files, _ := filepath.Glob(filepath.Join(j.dir, "journal-*.jsonl*")) //nolint:errcheck // the pattern is valid
	for _, f := range files {
		if f != j.path && f != j.nextPath() {
			_ = os.Remove(f)
		}
	}
}

// compact replaces the journal by a new one, with one or two lines for each knob,
// group and process that it still needs. It writes the new journal to the file
// next, and then gives this file the name of the journal.
func (j *Journal) compact(next string) error {
	own, err := j.state.text()
	if err != nil {
		return fmt.Errorf("compact %s: %w", j.path, err)
	}
	if err := writeNext(next, own.text); err != nil {
		return errors.Join(fmt.Errorf("compact journal: %w", err), os.Remove(next))
	}
	j.work.add(len(own.text))
	if info, err := os.Stat(j.path); err != nil || info.Size() != j.size || !os.SameFile(info, j.read) {
		return errors.Join(err, os.Remove(next)) // another process writes: try later
	}
	if err := os.Rename(next, j.path); err != nil {
		return errors.Join(fmt.Errorf("compact journal: %w", err), os.Remove(next))
	}
	return j.loadKnowing(own)
}

// Close closes the lock file. It does not remove entries.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.lock == nil {
		return nil
	}
	err := j.lock.Close()
	j.lock = nil
	return err
}
