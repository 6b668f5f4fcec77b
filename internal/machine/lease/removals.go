package lease

import (
	"context"
	"os"

	"golang.org/x/sys/unix"
)

// WatchRemovals returns a channel that gets a value after files in a directory
// were removed (inotify(7)). So a restore need not wait until the watchdog
// looks again. Renewals replace the lease by a rename, which is no removal. If
// the kernel cannot report removals, the channel never gets a value. The watch
// ends with ctx.
func WatchRemovals(ctx context.Context, dir string) <-chan struct{} {
	removed := make(chan struct{}, 1)
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return removed
	}
	events := os.NewFile(uintptr(fd), "inotify") // a read waits in the poller, and blocks no thread
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_DELETE|unix.IN_ONLYDIR); err != nil {
		_ = events.Close()
		return removed
	}
	stop := context.AfterFunc(ctx, func() { _ = events.Close() })
	go func() {
		defer stop()
		defer events.Close()
		for text := make([]byte, 4<<10); ; {
			if _, err := events.Read(text); err != nil {
				return
			}
			select {
			case removed <- struct{}{}:
			default: // the watchdog has not read the last value yet
			}
		}
	}()
	return removed
}
