// This file reports which entries of directories are made, renamed, removed and
// written (inotify(7)).

package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unwatched is the number in place of a watch for a directory that has none.
const unwatched = -1

// eventsSize is a good size of the read buffer, in bytes: about a thousand events.
const eventsSize = 64 << 10

// entryEvents are the watched events of a directory: mkdir, rmdir and rename of
// its entries.
const entryEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR

// writeEvents are the watched events of a directory: writes to the files in it.
const writeEvents = unix.IN_MODIFY | unix.IN_ONLYDIR

// An eventQueue is a queue of events. No watch may be added or removed after or during
// Close: the number of the file may be that of another one then.
type eventQueue struct {
	*os.File // a read waits in Go's poller and blocks no thread
	fd       int
}

// newEventQueue opens an empty queue.
func newEventQueue() (*eventQueue, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return nil, fmt.Errorf("start inotify: %w (limit of open files, or fs.inotify.max_user_instances)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("start inotify: %w", err)
	}
	return &eventQueue{File: os.NewFile(uintptr(fd), "inotify"), fd: fd}, nil
}

// Watch adds a watch for some events of a directory and returns its number. As long
// as the directory exists, each call returns the same number.
func (q *eventQueue) Watch(dir string, events uint32) (int32, error) {
	n, err := unix.InotifyAddWatch(q.fd, dir, events)
	if errors.Is(err, unix.ENOSPC) {
		return unwatched, fmt.Errorf("%w (fs.inotify.max_user_watches)", err)
	}
	if err != nil {
		return unwatched, err
	}
	return int32(n), nil
}

// Unwatch removes a watch. The kernel may have removed it already, together
// with the directory.
func (q *eventQueue) Unwatch(watch int32) { _, _ = unix.InotifyRmWatch(q.fd, uint32(watch)) }

// A groupEvent is one inotify_event.
type groupEvent struct {
	Watch int32
	Mask  uint32 // unix.IN_CREATE, …
	Name  string // the entry of the watched directory that the event is about
}

// nextEvent decodes the first event and returns the remaining bytes.
func nextEvent(events []byte) (e groupEvent, rest []byte) {
	if len(events) < unix.SizeofInotifyEvent {
		return groupEvent{}, nil
	}
	e.Watch = int32(binary.NativeEndian.Uint32(events))
	e.Mask = binary.NativeEndian.Uint32(events[4:])
	length := int(binary.NativeEndian.Uint32(events[12:]))
	events = events[unix.SizeofInotifyEvent:]
	length = max(0, min(length, len(events)))
	e.Name, _, _ = strings.Cut(string(events[:length]), "\x00")
	return e, events[length:]
}
