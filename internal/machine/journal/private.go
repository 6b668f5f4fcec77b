package journal

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// Exposed returns an error if another user may have made or changed the files in
// the state directory dir, for example because it got another mode.
func Exposed(dir string) error { return private(dir) }

// private returns an error if another user may have made or changed the files in
// dir. The journal decides which processes a restore ends and which files it
// writes. A directory that does not exist is private, and so is one of root.
func private(dir string) error {
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
			return fmt.Errorf("the state directory %s belongs to user %d, who could have written the journal: choose another directory", dir, stat.Uid)
		}
	}
	switch {
	case !info.IsDir():
		return fmt.Errorf("the state directory %s is not a directory", dir)
	case info.Mode().Perm()&0o002 != 0:
		return fmt.Errorf("every user can write to the state directory %s (mode %04o), and so to the journal: choose another directory", dir, info.Mode().Perm())
	}
	return nil
}
