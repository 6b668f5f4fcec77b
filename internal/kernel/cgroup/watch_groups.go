package cgroup

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// look brings what is known in line with the groups that exist, and watches
// those that are not watched yet.
func (w *Watcher) look(ctx context.Context) {
	w.missed, w.next = nil, time.Time{}
	if w.inotify == nil {
		w.open(ctx)
	}
	seen := map[string]bool{}
	w.follow("", seen)
	for path := range w.known {
		if !seen[path] {
			w.forget(path)
		}
	}
}

// open asks the kernel for events until ctx ends.
func (w *Watcher) open(ctx context.Context) {
	queue, err := newInotify()
	if err != nil {
		w.miss(err)
		return
	}
	w.inotify = queue
	context.AfterFunc(ctx, func() { _ = queue.SetReadDeadline(time.Now()) })
}

// shut ends all watches.
func (w *Watcher) shut() {
	if w.inotify == nil {
		return
	}
	_ = w.inotify.Close()
	w.inotify = nil
	clear(w.byWatch)
	for _, g := range w.known {
		g.watch = unwatched
	}
}

// take updates the watcher's state from events.
func (w *Watcher) take(ctx context.Context, events []byte) {
	for len(events) > 0 {
		var e event
		if e, events = nextEvent(events); e.mask&unix.IN_Q_OVERFLOW != 0 {
			w.look(ctx) // some events are lost
			continue
		}
		group, known := w.byWatch[e.watch]
		switch {
		case !known: // told before the group was dropped
		case e.mask&unix.IN_IGNORED != 0: // the directory of the watch is gone
			w.drop(group)
			if group == "" {
				w.miss(errors.New("watch cgroups: the file system has been unmounted"))
			}
		case e.mask&unix.IN_ISDIR == 0:
		case e.mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
			w.drop(below(group, e.name))
		default:
			w.follow(below(group, e.name), nil)
		}
	}
}

// follow watches a group and all below it. It watches a group before it lists
// what is below, so that a group made in between is listed, told, or both.
// What it meets is marked in seen. Without seen it trusts the watch of a group
// that has one: what is below is known from there.
func (w *Watcher) follow(path string, seen map[string]bool) {
	watch, err := w.watchGroup(path)
	if absent(err) && path != "" {
		return // its end is told, too
	}
	if err != nil {
		w.miss(err)
	}
	if old := w.known[path]; old != nil {
		switch {
		case old.watch != unwatched && old.watch != watch:
			w.drop(path) // it was removed and made again
		case old.watch == watch && watch != unwatched && seen == nil:
			return
		}
	}
	names, err := w.list(path)
	if absent(err) && path != "" {
		w.unwatch(watch)
		return
	}
	if err != nil {
		w.miss(err)
	}
	if absent(err) {
		return
	}
	w.add(path, watch)
	if seen != nil {
		seen[path] = true
	}
	for _, name := range names {
		w.follow(below(path, name), seen)
	}
}

// list returns the names of the groups directly below one. A directory in
// which there are no others has two links, by its name and by its own dot,
// where the file system counts them, as that of cgroups does. So the many
// files of a leaf need not be listed.
func (w *Watcher) list(path string) ([]string, error) {
	dir, err := w.h.dir(path)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err == nil && st.Nlink == 2 {
		return nil, nil
	}
	return w.h.children(path)
}

func (w *Watcher) watchGroup(path string) (int32, error) {
	if w.inotify == nil {
		return unwatched, nil
	}
	dir, err := w.h.dir(path)
	if err != nil {
		return unwatched, err
	}
	watch, err := w.inotify.watch(dir)
	if err != nil {
		return unwatched, fmt.Errorf("watch cgroup %s: %w", shown(path), err)
	}
	return watch, nil
}

// absent reports whether there was no group at that moment. There may be one
// again, made since.
func absent(err error) bool { return errors.Is(err, os.ErrNotExist) }

// miss remembers the first reason why a group is not watched.
func (w *Watcher) miss(err error) {
	if w.missed == nil {
		w.missed = err
	}
}

func (w *Watcher) add(path string, watch int32) {
	if watch != unwatched {
		w.byWatch[watch] = path
	}
	if g := w.known[path]; g != nil {
		g.watch = watch
		return
	}
	w.dirty = true
	w.mu.Lock()
	defer w.mu.Unlock()
	w.known[path] = &watched{watch: watch}
	w.sorted = nil
	if up := w.known[above(path)]; up != nil && path != "" {
		up.children++
	}
}

// drop forgets a group and all below it.
func (w *Watcher) drop(path string) {
	g := w.known[path]
	if g == nil {
		return
	}
	if g.children > 0 { // events were lost, or it was renamed
		for p := range w.known {
			if path == "" || strings.HasPrefix(p, path+"/") {
				w.forget(p)
			}
		}
	}
	w.forget(path)
}

func (w *Watcher) forget(path string) {
	g := w.known[path]
	if g == nil {
		return
	}
	// A renamed group has kept its watch, which may be known by the new name.
	if w.byWatch[g.watch] == path {
		w.unwatch(g.watch)
	}
	w.dirty = true
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.known, path)
	w.sorted = nil
	if up := w.known[above(path)]; up != nil && path != "" {
		up.children--
	}
}

// unwatch ends a watch. The kernel does so itself when a directory of another
// file system is removed, but not with a cgroup (seen on Linux 6.18): the
// watch would count, and hold its inode, until the queue is closed.
func (w *Watcher) unwatch(watch int32) {
	if watch == unwatched {
		return
	}
	delete(w.byWatch, watch)
	if w.inotify != nil {
		w.inotify.unwatch(watch)
	}
}

// below is the path of a group directly below another.
func below(path, name string) string {
	if path == "" {
		return name
	}
	return path + "/" + name
}

// above is the path of the group that a group is directly below.
func above(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }
