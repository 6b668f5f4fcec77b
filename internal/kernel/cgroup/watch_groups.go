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

// look scans all groups, updates the list of known groups, and adds missing
// watches.
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
	for path := range w.unread {
		if !seen[path] {
			w.pass(path, nil)
		}
	}
}

// open opens the event queue. The queue ends when ctx ends.
func (w *Watcher) open(ctx context.Context) {
	queue, err := newEventQueue()
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

// take applies events to the list of known groups.
func (w *Watcher) take(ctx context.Context, events []byte) {
	for len(events) > 0 {
		var e groupEvent
		if e, events = nextEvent(events); e.Mask&unix.IN_Q_OVERFLOW != 0 {
			w.look(ctx) // some events are lost
			continue
		}
		group, known := w.byWatch[e.Watch]
		switch {
		case !known: // the group was dropped after the event
		case e.Mask&unix.IN_IGNORED != 0: // the watched directory was removed
			w.drop(group)
			if group == "" {
				w.miss(errors.New("watch cgroups: the file system has been unmounted"))
			}
		case e.Mask&unix.IN_ISDIR == 0:
		case e.Mask&(unix.IN_DELETE|unix.IN_MOVED_FROM) != 0:
			w.drop(childPath(group, e.Name))
		default:
			w.follow(childPath(group, e.Name), nil)
		}
	}
}

// follow watches a group and all groups below it. It watches a group before it
// lists the group's children. So a new child is in the list, or causes an
// event, or both. It adds each group to the set seen. If seen is nil, follow
// stops at groups that have a watch already, because their children are known.
func (w *Watcher) follow(path string, seen map[string]bool) {
	watch, err := w.watchGroup(path)
	if isGone(err) && path != "" {
		return // its removal gives an event, too
	}
	if isShort(err) || err != nil && path == "" {
		w.miss(err)
		err = nil
	}
	unread := err
	if old := w.known[path]; old != nil {
		switch {
		case old.watch != unwatched && old.watch != watch:
			w.drop(path) // the group was removed and made again
		case old.watch == watch && watch != unwatched && seen == nil:
			return
		}
	}
	names, err := w.h.children(path)
	if isGone(err) && path != "" {
		w.unwatch(watch)
		return
	}
	switch {
	case err != nil && path == "":
		w.miss(err)
		if isGone(err) {
			return
		}
	case err != nil:
		unread = err
	}
	w.pass(path, unread)
	if seen != nil {
		seen[path] = true
	}
	if unread != nil {
		if _, err := w.h.inode(path); err != nil {
			return // it is not even found
		}
	}
	w.add(path, watch)
	for _, name := range names {
		w.follow(childPath(path, name), seen)
	}
}

// isShort reports whether a watch failed because the user or this process has no
// watches, descriptors or memory left. A later watch may then succeed.
func isShort(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// pass records that a group cannot be read, and why, or that it can (nil).
func (w *Watcher) pass(path string, err error) {
	if _, unread := w.unread[path]; unread == (err != nil) {
		return
	}
	w.dirty = true
	w.mu.Lock()
	defer w.mu.Unlock()
	if err == nil {
		delete(w.unread, path)
		return
	}
	w.unread[path] = err
}

func (w *Watcher) watchGroup(path string) (int32, error) {
	if w.inotify == nil {
		return unwatched, nil
	}
	dir, err := w.h.dir(path)
	if err != nil {
		return unwatched, err
	}
	watch, err := w.inotify.Watch(dir, entryEvents)
	if err != nil {
		return unwatched, fmt.Errorf("watch cgroup %s: %w", printPath(path), err)
	}
	return watch, nil
}

// isGone reports whether err means that a group did not exist. A new group with
// the same name may exist by now.
func isGone(err error) bool { return errors.Is(err, os.ErrNotExist) }

// miss stores the first reason why a group has no watch.
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
	w.known[path] = &watchedGroup{watch: watch}
	w.sorted = nil
	w.differ[path] = true
	if up := w.known[parentOf(path)]; up != nil && path != "" {
		up.children++
	}
}

// drop forgets a group and all groups below it.
func (w *Watcher) drop(path string) {
	for p := range w.unread {
		if p == path || path == "" || strings.HasPrefix(p, path+"/") {
			w.pass(p, nil)
		}
	}
	g := w.known[path]
	if g == nil {
		return
	}
	if g.children > 0 { // events were lost, or the group was renamed
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
	// If the group was renamed, its watch may already belong to the new name.
	if w.byWatch[g.watch] == path {
		w.unwatch(g.watch)
	}
	w.dirty = true
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.known, path)
	w.sorted = nil
	w.differ[path] = true
	if up := w.known[parentOf(path)]; up != nil && path != "" {
		up.children--
	}
}

// unwatch removes a watch. On cgroupfs, unlike other file systems, the kernel
// keeps a watch after its directory is removed (seen on Linux 6.18). Until the
// queue is closed, such a watch would count against the limit of watches and
// keep the directory's inode.
func (w *Watcher) unwatch(watch int32) {
	if watch == unwatched {
		return
	}
	delete(w.byWatch, watch)
	if w.inotify != nil {
		w.inotify.Unwatch(watch)
	}
}

// childPath returns the path of a child of a group.
func childPath(path, name string) string {
	if path == "" {
		return name
	}
	return path + "/" + name
}

// parentOf returns the path of the parent of a group.
func parentOf(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }
