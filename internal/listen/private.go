package listen

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Private listens on a Unix socket at path, to which only the user of this process
// may connect. It replaces a socket that a dead process has left there.
func Private(ctx context.Context, path string) (net.Listener, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	// bind(2) creates the socket file with the mode of the socket. So other users
	// cannot connect, not even for a moment.
	private := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var refused error
		err := c.Control(func(fd uintptr) { refused = unix.Fchmod(int(fd), 0o600) })
		return errors.Join(err, refused)
	}}
	return private.Listen(ctx, "unix", path)
}
