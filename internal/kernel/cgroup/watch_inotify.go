package cgroup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unwatched is the number in place of a watch for a group that has none.
const unwatched = -1

// eventsSize is the size of the read buffer, in bytes: about a thousand events.
const eventsSize = 64 << 10

// groupEvents are the watched events of a directory: mkdir, rmdir and, on v1,
// rename of child groups.
const groupEvents = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_ONLYDIR

// inotify is a queue of events (inotify(7)). Only the goroutine that closes the
// queue may add and remove watches.
type inotify struct {
	*os.File // a read waits in Go's poller and blocks no thread
	fd       int
}

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if errors.Is(err, unix.EMFILE) {
		return nil, fmt.Errorf("start inotify: %w (limit of open files, or fs.inotify.max_user_instances)", err)
	}
	if err != nil {
		return nil, fmt.Errorf("start inotify: %w", err)
	}
	return &inotify{File: os.NewFile(uintptr(fd), "inotify"), fd: fd}, nil
}

// watch adds a watch of a directory and returns its number. As long as the
// directory exists, each call returns the same number.
func (i *inotify) watch(dir string) (int32, error) {
	n, err := unix.InotifyAddWatch(i.fd, dir, groupEvents)
	if errors.Is(err, unix.ENOSPC) {
		return unwatched, fmt.Errorf("%w (fs.inotify.max_user_watches)", err)
	}
	if err != nil {
		return unwatched, err
	}
	return int32(n), nil
}

// unwatch removes a watch. The kernel may have removed it already, together
// with the directory.
func (i *inotify) unwatch(watch int32) { _, _ = unix.InotifyRmWatch(i.fd, uint32(watch)) }

// An event is one inotify_event (inotify(7)).
type event struct {
	watch int32
	mask  uint32
	name  string // the child of the watched directory that has changed
}

// nextEvent decodes the first event and returns the remaining bytes.
func nextEvent(events []byte) (e event, rest []byte) {
	if len(events) < unix.SizeofInotifyEvent {
		return event{}, nil
	}
	e.watch = int32(binary.NativeEndian.Uint32(events))
	e.mask = binary.NativeEndian.Uint32(events[4:])
	length := int(binary.NativeEndian.Uint32(events[12:]))
	events = events[unix.SizeofInotifyEvent:]
	length = max(0, min(length, len(events)))
	e.name, _, _ = strings.Cut(string(events[:length]), "\x00")
	return e, events[length:]
}
