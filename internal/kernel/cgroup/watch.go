package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/kernel/partial"
)

const (
	// lookEvery is the time between two scans of all groups. There are scans only
	// while the kernel does not report the changes of some groups.
	lookEvery = 2 * time.Second
	// lookRarer is the factor by which scans are rarer if all that they could find
	// is below groups that cannot be read.
	lookRarer = 30
)

// A Watcher holds the present list of groups in the hierarchy of cpu. It is
// notified by the kernel of every group that is made, renamed or removed
// (inotify(7)). Without changes it uses no CPU.
type Watcher struct {
	h       *hierarchy
	period  time.Duration // between two scans of all groups, while degraded
	cancel  context.CancelFunc
	ended   chan struct{}
	changed chan struct{}

	// Only the goroutine that executes run uses these fields.
	inotify *eventQueue      // nil: there are no events
	byWatch map[int32]string // the group of each watch
	missed  error            // why some or all groups are not watched; nil: all are, except those in unread
	next    time.Time        // time of the next scan of all groups; zero: none is needed
	dirty   bool             // groups have changed since the last call of tell

	// Only the goroutine of run changes these fields, under mu. It may read
	// them without mu.
	mu       sync.Mutex
	known    map[string]*watchedGroup
	sorted   []string        // known, without the root; nil: not yet computed
	differ   map[string]bool // groups that changed since the last call of Changes
	degraded error
	unread   map[string]error // the groups that cannot be read, with the causes
}

// A watchedGroup is the state of a known group.
type watchedGroup struct {
	watch    int32 // the watch, or unwatched
	children int   // number of known groups directly below it
}

// Watch watches all groups until ctx ends or Close is called. It fails if the
// groups cannot be listed. For other problems, see DegradedReason.
func (t *Tree) Watch(ctx context.Context) (*Watcher, error) { return t.watch(ctx, lookEvery) }

func (t *Tree) watch(ctx context.Context, period time.Duration) (*Watcher, error) {
	w := newWatcher(t.hierarchies[0], period)
	ctx, w.cancel = context.WithCancel(ctx)
	w.look(ctx)
	if w.known[""] == nil {
		w.cancel()
		w.shut()
		return nil, w.missed
	}
	w.settle()
	w.dirty, w.differ = false, map[string]bool{}
	go w.run(ctx)
	return w, nil
}

func newWatcher(h *hierarchy, period time.Duration) *Watcher {
	return &Watcher{
		h: h, period: period, ended: make(chan struct{}), changed: make(chan struct{}, 1),
		byWatch: map[int32]string{}, known: map[string]*watchedGroup{}, differ: map[string]bool{},
		unread: map[string]error{},
	}
}

// Groups returns the sorted paths of all groups below the root that the kernel
// has reported. The caller may keep the slice, but must not change it.
func (w *Watcher) Groups() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sorted == nil {
		w.sorted = make([]string, 0, len(w.known))
		for path := range w.known {
			if path != "" {
				w.sorted = append(w.sorted, path)
			}
		}
		slices.Sort(w.sorted)
	}
	return w.sorted
}

// Changes returns the groups that were made, renamed or removed since the last
// call, also those that exist again. Call Changes before Groups to miss no group.
func (w *Watcher) Changes() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	defer clear(w.differ)
	return slices.Sorted(maps.Keys(w.differ))
}

// Changed receives a value after a group was made, renamed or removed. Several
// changes may give one value.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Missed returns a partial.Error with the groups that cannot be read, or nil. The
// Watcher looks at them again from time to time.
func (w *Watcher) Missed() *partial.Error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unread) == 0 {
		return nil
	}
	missed := &partial.Error{}
	for _, path := range slices.Sorted(maps.Keys(w.unread)) {
		missed.Add(path, w.unread[path])
	}
	return missed
}

// DegradedReason returns nil while the kernel reports the changes of every group
// except those of Missed. Otherwise it returns the reason: usually the user has
// no inotify watches left. The Watcher then finds changes by a scan of all groups
// every 2 s. Each scan tries to add the missing watches.
func (w *Watcher) DegradedReason() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.degraded
}

// Close ends the watch. Groups then still returns the last list.
func (w *Watcher) Close() {
	w.cancel()
	<-w.ended
}

func (w *Watcher) run(ctx context.Context) {
	defer close(w.ended)
	defer w.shut()
	events := make([]byte, eventsSize)
	for {
		n, err := w.wait(ctx, events)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			w.take(ctx, events[:n])
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.look(ctx)
		default:
			w.shut()
			w.miss(fmt.Errorf("read inotify events: %w", err))
		}
		w.settle()
		w.tell()
	}
}

// wait reads events. It fails with os.ErrDeadlineExceeded when a scan is due or
// ctx ends.
func (w *Watcher) wait(ctx context.Context, events []byte) (int, error) {
	if w.inotify == nil {
		select {
		case <-ctx.Done():
		case <-time.After(time.Until(w.next)):
		}
		return 0, os.ErrDeadlineExceeded
	}
	if err := w.inotify.SetReadDeadline(w.next); err != nil {
		return 0, err
	}
	// When ctx ends, a deadline is set at once. The deadline above may have
	// replaced it.
	if ctx.Err() != nil {
		return 0, os.ErrDeadlineExceeded
	}
	return w.inotify.Read(events)
}

// settle sets the error that DegradedReason returns, and plans the next scan.
func (w *Watcher) settle() {
	period := w.period
	if w.missed == nil {
		period *= lookRarer
	}
	switch {
	case w.missed == nil && len(w.unread) == 0:
		w.next = time.Time{}
	case w.next.IsZero() || time.Until(w.next) > period:
		w.next = time.Now().Add(period)
	}
	if (w.missed == nil) == (w.degraded == nil) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.degraded = nil
	if w.missed != nil {
		w.degraded = fmt.Errorf("%w; scanning all cgroups every %v instead", w.missed, w.period)
	}
}

func (w *Watcher) tell() {
	if !w.dirty {
		return
	}
	w.dirty = false
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// Direct reports whether processes are in the group itself, and not only in
// groups below it.
func (t *Tree) Direct(path string) (bool, error) {
	h, err := t.home(path)
	if err != nil {
		return false, err
	}
	some, err := h.hasContent(path, "cgroup.procs")
	if errors.Is(err, unix.EOPNOTSUPP) { // a threaded group has no cgroup.procs
		some, err = h.hasContent(path, "cgroup.threads")
	}
	return some, err
}

// hasContent reports whether a file of a group has any content.
func (h *hierarchy) hasContent(path, file string) (bool, error) {
	dir, err := h.dir(path)
	if err != nil {
		return false, err
	}
	f, err := os.Open(filepath.Join(dir, file))
	if err != nil {
		return false, fmt.Errorf("read %s in %s: %w", file, printPath(path), lookCause(dir, file, err))
	}
	defer f.Close()
	n, err := f.Read(make([]byte, 1))
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read %s in %s: %w", file, printPath(path), lookCause(dir, file, err))
	}
	return n > 0, nil
}
