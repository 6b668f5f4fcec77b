package work

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/unit"
)

// PageBytes is the size of a page that the service sends in the memory
// experiment. A picture on a web page has about this size.
const PageBytes = 64 << 10

// WritePages writes a number of files (pages) of PageBytes each. The name of a file
// is its number. The content is random, so that a file system cannot compress it.
func WritePages(dir string, pages int, seed uint64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{byte(seed)})
	page := make([]byte, PageBytes)
	for i := range pages {
		_, _ = random.Read(page) // never fails
		if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(i)), page, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// WriteFile writes a file of random bytes.
func WriteFile(path string, size unit.Bytes, seed uint64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	random := rand.NewChaCha8([32]byte{byte(seed)})
	chunk := make([]byte, hogChunk)
	for left := int64(size); left > 0; left -= int64(len(chunk)) {
		_, _ = random.Read(chunk)
		if _, err := f.Write(chunk[:min(int64(len(chunk)), left)]); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// Evict writes the files below dir to their device and asks the kernel to drop
// them from the page cache. It does not affect other files (posix_fadvise(2),
// POSIX_FADV_DONTNEED).
func Evict(dir string) error {
	root, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	// The kernel does not drop dirty pages.
	if err := unix.Syncfs(int(root.Fd())); err != nil {
		return fmt.Errorf("sync the file system of %s: %w", dir, err)
	}
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// CachedPages returns how many pages of a file are in memory (mincore(2)), and
// how many pages the file has.
func CachedPages(path string) (held, all int, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() == 0 {
		return 0, 0, err
	}
	mapped, err := unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return 0, 0, fmt.Errorf("map %s: %w", path, err)
	}
	defer func() { _ = unix.Munmap(mapped) }()
	page := os.Getpagesize()
	state := make([]byte, (len(mapped)+page-1)/page)
	if err := mincore(mapped, state); err != nil {
		return 0, 0, fmt.Errorf("mincore %s: %w", path, err)
	}
	for _, s := range state {
		held += int(s & 1)
	}
	return held, len(state), nil
}

// RoomFor returns an error if less than the wanted space is free in the file system of dir.
func RoomFor(dir string, want unit.Bytes) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return fmt.Errorf("--data %s: %w", dir, err)
	}
	if free := unit.Bytes(st.Bavail) * unit.Bytes(st.Bsize); free < want {
		return fmt.Errorf("--data %s: %s are free, the experiment writes %s: choose another directory, or a smaller --set", dir, testbed.Mebibytes(free), testbed.Mebibytes(want))
	}
	return nil
}

// OpenToAll returns an error if a service of another user cannot enter dir.
func OpenToAll(dir string) error {
	dir, err := filepath.Abs(dir)
	for err == nil {
		var info os.FileInfo
		if info, err = os.Stat(dir); err != nil {
			break
		}
		if info.Mode().Perm()&0o001 == 0 {
			return fmt.Errorf("nginx's workers, which run as another user, cannot enter %s (mode %v): choose another directory", dir, info.Mode().Perm())
		}
		if dir == filepath.Dir(dir) {
			return nil
		}
		dir = filepath.Dir(dir)
	}
	return err
}
