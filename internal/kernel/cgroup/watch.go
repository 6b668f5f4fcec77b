package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lookEvery is how often a Watcher looks at all groups while the kernel does
// not tell it of all of them.
const lookEvery = 2 * time.Second

// A Watcher knows which groups exist in the hierarchy that carries cpu, and
// keeps knowing it: the kernel tells it of every group that is made, renamed
// or removed (inotify(7)). While nothing changes it costs nothing.
type Watcher struct {
	h       *hierarchy
	period  time.Duration // between looks at all groups, while degraded
	cancel  context.CancelFunc
	ended   chan struct{}
	changed chan struct{}

	// The goroutine of run alone uses these.
	inotify *inotify         // nil: no events come
	byWatch map[int32]string // which group a watch is of
	missed  error            // why some groups are not watched, or none
	next    time.Time        // of a look at all groups; zero: none is needed
	dirty   bool             // groups have changed since tell

	// The goroutine of run alone changes these, and reads them without mu.
	mu       sync.Mutex
	known    map[string]*watched
	sorted   []string // known, without the root; nil: to be made
	degraded error
}

// watched is what is known of a group.
type watched struct {
	watch    int32 // or unwatched
	children int   // how many known groups are directly below it
}

// Watch starts to follow all groups until ctx ends or Close is called. It
// fails where the groups cannot be listed; see Degraded for the rest.
func (t *Tree) Watch(ctx context.Context) (*Watcher, error) { return t.watch(ctx, lookEvery) }

func (t *Tree) watch(ctx context.Context, period time.Duration) (*Watcher, error) {
	w := newWatcher(t.all[0], period)
	ctx, w.cancel = context.WithCancel(ctx)
	w.look(ctx)
	if w.known[""] == nil {
		w.cancel()
		w.shut()
		return nil, w.missed
	}
	w.settle()
	w.dirty = false
	go w.run(ctx)
	return w, nil
}

func newWatcher(h *hierarchy, period time.Duration) *Watcher {
	return &Watcher{
		h: h, period: period, ended: make(chan struct{}), changed: make(chan struct{}, 1),
		byWatch: map[int32]string{}, known: map[string]*watched{},
	}
}

// Groups returns the paths of all groups below the root, sorted, as they are
// after all that the kernel has told so far. The caller may keep the slice
// but not change it.
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

// Changed tells that Groups has changed since the last receive, or that a
// group has been removed and made again. Any number of changes are one.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Degraded returns nil while the kernel tells of every group, and otherwise
// why it does not, mostly that the user's inotify watches are used up. Then
// changes are seen late, at the next look at all groups every 2 s. Each look
// tries to watch again.
func (w *Watcher) Degraded() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.degraded
}

// Close ends the watch. Groups stays as it was.
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

// wait reads events. It fails with os.ErrDeadlineExceeded when it is time for
// a look, or when ctx ends.
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
	// The end of ctx sets a deadline as well; this one may have come after it.
	if ctx.Err() != nil {
		return 0, os.ErrDeadlineExceeded
	}
	return w.inotify.Read(events)
}

// settle publishes whether all groups are watched, and decides when to look.
func (w *Watcher) settle() {
	if w.missed == nil {
		w.next = time.Time{}
	} else if w.next.IsZero() {
		w.next = time.Now().Add(w.period)
	}
	if (w.missed == nil) == (w.degraded == nil) {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.degraded = nil
	if w.missed != nil {
		w.degraded = fmt.Errorf("%w; looking at all cgroups every %v instead", w.missed, w.period)
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

// Direct reports whether the group has processes itself, not only in groups
// below it.
func (t *Tree) Direct(path string) (bool, error) {
	h, err := t.home(path)
	if err != nil {
		return false, err
	}
	some, err := h.some(path, "cgroup.procs")
	if errors.Is(err, unix.EOPNOTSUPP) { // a threaded group has no list of processes
		some, err = h.some(path, "cgroup.threads")
	}
	return some, err
}

// some reports whether there is anything to read in a file of a group.
func (h *hierarchy) some(path, file string) (bool, error) {
	dir, err := h.dir(path)
	if err != nil {
		return false, err
	}
	f, err := os.Open(filepath.Join(dir, file))
	if err != nil {
		return false, fmt.Errorf("read %s in %s: %w", file, shown(path), cause(dir, err))
	}
	defer f.Close()
	n, err := f.Read(make([]byte, 1))
	if err != nil && !errors.Is(err, io.EOF) {
		return false, fmt.Errorf("read %s in %s: %w", file, shown(path), cause(dir, err))
	}
	return n > 0, nil
}
