package vm

import (
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

// Disk writes the image into a file as an ext4 file system, for [Machine].Disk.
// size is in bytes. A disk is useful if the files are too large for the guest's
// memory, or if the root of containers must be on a disk file system. Hard
// links of the host stay hard links. Disk needs mke2fs of e2fsprogs.
func (i *Image) Disk(name string, size int64) error {
	dir, err := os.MkdirTemp(filepath.Dir(name), "disk-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := i.unpack(dir); err != nil {
		return fmt.Errorf("pack %s: %w", name, err)
	}
	tool, err := exec.LookPath("mke2fs")
	if err != nil {
		tool = "/sbin/mke2fs" // not on the PATH of other users
	}
	out, err := exec.Command(tool, "-q", "-F", "-t", "ext4", "-O", "^has_journal", "-E", "root_owner=0:0", "-d", dir, name, fmt.Sprintf("%dK", size>>10)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("pack %s: mke2fs: %w: %s", name, err, out)
	}
	return nil
}

// unpack writes the files below a directory.
func (i *Image) unpack(dir string) error {
	first := make(map[string]string) // maps a path on the host to its copy
	for _, guest := range slices.Sorted(maps.Keys(i.files)) {
		f, to := i.files[guest], filepath.Join(dir, guest)
		var err error
		switch {
		case f.mode&fs.ModeDir != 0:
			err = os.MkdirAll(to, f.mode.Perm())
		case f.host == "":
			err = os.WriteFile(to, f.content, f.mode.Perm())
		default:
			var host string
			if host, err = filepath.EvalSymlinks(f.host); err != nil {
				break
			}
			if first[host] != "" {
				err = os.Link(first[host], to)
				break
			}
			first[host] = to
			err = copyFile(to, host, f.mode.Perm())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
