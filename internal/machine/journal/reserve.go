package journal

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"tenon.sh/tenon/internal/machine/statedir"
)

// reserveSize is the least number of bytes that are reserved for the case that
// the file system becomes full. They hold a compacted journal with about three
// hundred entries.
const reserveSize = 64 << 10

// lineSize is the assumed length of a line in bytes. Most lines are shorter.
const lineSize = 256

// reserve returns how much space a compacted journal needs. It is a power of
// two, so that it rarely changes.
func (s State) reserve() int64 {
	size := int64(reserveSize)
	for need := int64(s.lines()) * lineSize; size < need; size *= 2 {
	}
	return size
}

// nextPath returns the path of the file that will replace the journal in the
// next compaction. Tenon makes this file early, empty but with allocated space.
// When the file system is full, a compaction uses this space. Then Tenon can
// still make entries about known knobs, which it needs in order to narrow
// best-effort work. Entries about new knobs fail, so that the journal does not
// grow.
func (j *Journal) nextPath() string { return j.path + ".next" }

// keepReserve allocates the reserved space, or as much of it as possible. If it
// gets less, it returns an error.
func (j *Journal) keepReserve() error {
	want := j.state.reserve()
	if info, err := os.Stat(j.nextPath()); err == nil && info.Sys().(*syscall.Stat_t).Blocks*512 >= want {
		return nil
	}
	f, err := statedir.Open(j.nextPath(), os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return fmt.Errorf("reserve space for the journal: %w", err)
	}
	defer f.Close()
	// On a full file system, perhaps no page is free except the one that the last
	// compaction freed. That is enough for the next compaction.
	const keepSize = 1 // FALLOC_FL_KEEP_SIZE
	for size := want; size >= int64(os.Getpagesize()); size /= 2 {
		sizeErr := fallocate(f, keepSize, size)
		if errors.Is(sizeErr, syscall.EOPNOTSUPP) {
			return nil // this file system cannot reserve space
		}
		if err == nil && sizeErr != nil {
			err = fmt.Errorf("reserve %d bytes for the journal in %s: %w", size, j.dir, sizeErr)
		}
		if sizeErr == nil {
			break
		}
	}
	return err
}

// fallocate allocates the first bytes of a file. On a tmpfs of Linux 6.1, any
// signal interrupts the system call (mm/shmem.c: shmem_fallocate), and the Go
// runtime sends itself signals. So fallocate tries again after EINTR.
func fallocate(f *os.File, mode uint32, size int64) error {
	return repeatInterrupted(func() error { return syscall.Fallocate(int(f.Fd()), mode, 0, size) })
}

// repeatInterrupted makes a system call again until no signal interrupts it.
func repeatInterrupted(call func() error) error {
	for {
		if err := call(); !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// write appends a line to the journal. If the file system is full, it uses the
// reserved space, except for an entry about a new knob (first).
func (j *Journal) write(line []byte, first, locked bool) error {
	if err := j.keepReserve(); err != nil && first {
		return err
	}
	err := j.appendLine(line)
	if first || !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	// Only a part of the line was written. Compaction removes it.
	next := j.nextPath()
	if !locked {
		// Another process holds the lock, and may be writing to the file next.
		// So compact to a file with another name. Remove the file next, because
		// it has the reserved space.
		_ = os.Remove(next)
		next = fmt.Sprintf("%s.%d", next, os.Getpid())
	}
	if err := errors.Join(j.load(), j.compact(next)); err != nil {
		return err
	}
	return j.appendLine(line)
}

func (j *Journal) appendLine(line []byte) error {
	if j.torn { // end the incomplete line of a writer that died
		line = append([]byte{'\n'}, line...)
	}
	f, err := statedir.Open(j.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	_, err = f.Write(line)
	j.work.add(len(line))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append to %s: %w", j.path, err)
	}
	return nil
}

// writeNext writes the file that will replace the journal. It does not truncate
// an empty file, because that would free the allocated space.
func writeNext(next string, text []byte) error {
	f, err := statedir.Open(next, os.O_WRONLY|os.O_CREATE)
	if err != nil {
		return err
	}
	if info, statErr := f.Stat(); statErr == nil && info.Size() > 0 { // left by a process that died
		err = f.Truncate(0)
	}
	_, writeErr := f.Write(text)
	return errors.Join(err, writeErr, f.Close())
}

// isFirst reports whether an entry is about a knob, group, controller or process
// that the journal does not have yet.
func (e *entry) isFirst() bool {
	return e.Op == opMade || e.Op == opEnabled || e.Op == opMadeControl && e.Inode == 0 || e.Op == opSpawned || e.Before != nil
}
