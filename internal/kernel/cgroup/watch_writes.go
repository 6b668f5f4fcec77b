package cgroup

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A WriteWatch says when a program writes a file of a few groups in the hierarchy of
// cpu, which on cgroup v2 has all files. The kernel reports each write of a process to
// such a file, also those of this process. It reports no change that it makes itself.
type WriteWatch struct {
	h     *hierarchy
	wrote chan string

	mu      sync.Mutex
	queue   *eventQueue // nil: the watch has ended
	byWatch map[int32]string
}

// WatchWrites returns a WriteWatch that ends with ctx. It watches no group yet.
func (t *Tree) WatchWrites(ctx context.Context) (*WriteWatch, error) {
	queue, err := newEventQueue()
	if err != nil {
		return nil, fmt.Errorf("watch writes to cgroups: %w", err)
	}
	w := &WriteWatch{h: t.hierarchies[0], wrote: make(chan string), queue: queue, byWatch: map[int32]string{}}
	context.AfterFunc(ctx, func() { _ = queue.SetReadDeadline(time.Now()) })
	go w.run(ctx, queue)
	return w, nil
}

// Only makes these the watched groups. It returns an error that names the first group
// that cannot be watched. A group that does not exist is no error.
func (w *WriteWatch) Only(paths []string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue == nil {
		return nil
	}
	var first error
	former := w.byWatch
	w.byWatch = make(map[int32]string, len(paths))
	for _, path := range paths {
		dir, err := w.h.dir(path)
		var n int32
		if err == nil {
			n, err = w.queue.Watch(dir, writeEvents)
		}
		switch {
		case err == nil:
			w.byWatch[n] = path
		case !isGone(err) && first == nil:
			first = fmt.Errorf("watch writes to cgroup %s: %w", printPath(path), err)
		}
	}
	for n := range former {
		if _, still := w.byWatch[n]; !still {
			w.queue.Unwatch(n)
		}
	}
	return first
}

// Wrote receives the path of a group after a file of it was written. Several writes may
// give one value. It is closed when the watch ends.
func (w *WriteWatch) Wrote() <-chan string { return w.wrote }

func (w *WriteWatch) run(ctx context.Context, queue *eventQueue) {
	defer close(w.wrote)
	defer func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = nil
		_ = queue.Close()
	}()
	events := make([]byte, eventsSize)
	for {
		n, err := queue.Read(events)
		if err != nil {
			return // ctx has ended
		}
		for path := range w.written(events[:n]) {
			select {
			case <-ctx.Done():
				return
			case w.wrote <- path:
			}
		}
	}
}

// written returns the groups that events are about. If the queue was full, these are all
// groups.
func (w *WriteWatch) written(events []byte) map[string]bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	groups := map[string]bool{}
	for len(events) > 0 {
		var e groupEvent
		if e, events = nextEvent(events); e.Mask&unix.IN_Q_OVERFLOW != 0 {
			for _, path := range w.byWatch {
				groups[path] = true
			}
		}
		if path, watched := w.byWatch[e.Watch]; watched && e.Mask&unix.IN_MODIFY != 0 {
			groups[path] = true
		}
	}
	return groups
}
