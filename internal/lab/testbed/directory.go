package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// DirPrefix is the prefix of the names of all temporary directories of the lab.
// After it comes the process ID. The default name of a directory of results
// (see Setting.Out) has a digit after "tenon-lab-", so it never has this
// prefix.
const DirPrefix = "tenon-lab-tmp-"

// Directory makes a directory in dir, or in the directory for temporary files
// if dir is empty. Close removes the new directory. Directory also removes the
// directories of labs that were killed.
func (s *Site) Directory(dir string) (string, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	sweep(dir)
	made, remove, err := makeDirectory(dir)
	if err != nil {
		return "", err
	}
	s.Undo = append(s.Undo, remove)
	return made, nil
}

// makeDirectory makes a temporary directory in dir, which sweep does not remove
// while this process lives. On a file system that cannot lock a directory, such
// as NFS, no sweep removes it.
func makeDirectory(dir string) (made string, remove func() error, err error) {
	made, err = os.MkdirTemp(dir, fmt.Sprintf("%s%d-", DirPrefix, os.Getpid()))
	if err != nil {
		return "", nil, err
	}
	held, err := lockDirectory(made)
	if err != nil {
		return made, func() error { return os.RemoveAll(made) }, nil
	}
	return made, func() error { return errors.Join(os.RemoveAll(made), held.Close()) }, nil
}

// lockDirectory locks a directory (flock(2)) until the returned file is closed,
// or this process ends. Children do not inherit the file. If another process
// has the lock, the error is EWOULDBLOCK.
func lockDirectory(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	return f, nil
}

// sweep removes the directories of labs that were killed. The process ID alone
// does not tell that a lab is dead: the lab may be in another PID namespace. So
// sweep also takes the lock that a lab holds as long as it lives.
func sweep(dir string) {
	dirs, _ := filepath.Glob(filepath.Join(dir, DirPrefix+"*-*")) //nolint:errcheck // the pattern is valid
	for _, dir := range dirs {
		id, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(dir), DirPrefix), "-")
		pid, err := strconv.Atoi(id)
		if err != nil || pid <= 0 || !errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
			continue
		}
		if held, err := lockDirectory(dir); err == nil {
			os.RemoveAll(dir)
			held.Close()
		}
	}
}
