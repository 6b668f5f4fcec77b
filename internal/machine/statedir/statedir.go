// Package statedir opens and locks the files in Tenon's state directory. These
// files decide which processes Tenon ends and which kernel files it writes, also
// as root. So another user must not be able to make or change them, and Tenon
// follows no symbolic link there.
package statedir

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// These files hold what a daemon leaves to the next one.
const (
	MemoryFile     = "memory.json"     // the state of the policies and the known containers
	MechanismsFile = "mechanisms.json" // an operator's choice of a mechanism, and failures
	PromisesFile   = "promises.json"   // what the promises of room have learnt
	PeaksFile      = "peaks.json"      // what batch resources have learnt of the peaks of other work
)

// Version is the version of the form of these files, but for PromisesFile, which has
// none. A renamed or removed key needs a new version: without it, a program would read
// the file of another form as if it said nothing.
const Version = 2

// Check returns an error if another user may have made or changed the files in
// dir. A directory that does not exist is good, and so is one of root.
func Check(dir string) error {
	link, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	info := link
	if link.Mode().Type() == fs.ModeSymlink {
		if info, err = os.Stat(dir); err != nil {
			return err
		}
	}
	for _, i := range []fs.FileInfo{link, info} {
		stat, ok := i.Sys().(*syscall.Stat_t)
		if ok && int(stat.Uid) != os.Geteuid() && stat.Uid != 0 {
			return fmt.Errorf("the state directory %s belongs to user %d, who could have written the files in it: choose another directory", dir, stat.Uid)
		}
	}
	if !info.IsDir() {
		return fmt.Errorf("the state directory %s is not a directory", dir)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		return fmt.Errorf("every user can write to the state directory %s (mode %04o): choose another directory", dir, mode)
	case mode&0o020 != 0 && ok && stat.Gid != 0 && int(stat.Gid) != os.Getegid():
		return fmt.Errorf("the group %d can write to the state directory %s (mode %04o): choose another directory", stat.Gid, dir, mode)
	}
	return nil
}

// Make creates the directory with the mode 0700, if it does not exist, and
// checks it.
func Make(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("make the state directory: %w", err)
	}
	return Check(dir)
}

// Open opens a file in a state directory, with the flags of os.OpenFile. A new
// file has the mode 0600. It returns an error if path is a symbolic link, if it is
// not a regular file, if it belongs to another user than this one or root, or if it
// has another name (a hard link). It does not wait for the writer of a pipe.
func Open(path string, flag int) (*os.File, error) {
	// Truncate only after the checks, because the file may be that of another path.
	f, err := os.OpenFile(path, flag&^os.O_TRUNC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o600)
	if errors.Is(err, unix.ELOOP) {
		return nil, fmt.Errorf("open %s: it is a symbolic link, and Tenon follows none in its state directory: remove it (%w)", path, unix.ELOOP)
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: it is not a regular file (mode %v): remove it", path, info.Mode())
	}
	if err == nil {
		err = checkOwner(path, info)
	}
	if err == nil && flag&os.O_TRUNC != 0 && info.Size() > 0 {
		err = f.Truncate(0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// checkOwner returns an error if another user may have written an open file. A
// file that was removed since it was opened has no link.
func checkOwner(path string, info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return nil
	case int(stat.Uid) != os.Geteuid() && stat.Uid != 0:
		return fmt.Errorf("open %s: it belongs to user %d, who could have written it: remove it", path, stat.Uid)
	case stat.Nlink > 1:
		return fmt.Errorf("open %s: the file has %d names (hard links), and must have one: remove it", path, stat.Nlink)
	}
	return nil
}

// ReadFile returns the content of a file in a state directory.
func ReadFile(path string) ([]byte, error) {
	f, err := Open(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(f)
	return text, errors.Join(err, f.Close())
}

// WriteFile replaces the content of a file in a state directory. If the process
// is killed during the write, the old file stays complete.
func WriteFile(path string, text []byte) error {
	next := path + ".next"
	f, err := Open(next, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(next, path) // it replaces a symbolic link, and does not follow it
}

// Remove removes a file in a state directory.
func Remove(path string) error { return os.Remove(path) }
