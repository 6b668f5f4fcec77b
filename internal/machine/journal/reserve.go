package journal

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// reserveSize is the space that is kept for when the file system is full: a
// compacted journal of some three hundred entries.
const reserveSize = 64 << 10

// nextPath is the file that replaces the journal when it is compacted. It is
// made early, empty and with allocated space that no other process can take, so
// that there is room for entries when the file system is full: best-effort work
// has to give way when a service needs its CPU. First touches wait for space,
// so the journal does not grow.
func (j *Journal) nextPath() string { return j.path + ".next" }

// keepReserve makes the reserve, or as much of it as there is room for, and
// fails if that is not all.
func (j *Journal) keepReserve() error {
	if info, err := os.Stat(j.nextPath()); err == nil && info.Sys().(*syscall.Stat_t).Blocks*512 >= reserveSize {
		return nil
	}
	f, err := os.OpenFile(j.nextPath(), os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("reserve space for the journal: %w", err)
	}
	defer f.Close()
	// On a full file system there may be as little as the page that the last
	// compaction has freed: enough for the next one.
	const keepSize = 1 // FALLOC_FL_KEEP_SIZE
	for size := int64(reserveSize); size >= int64(os.Getpagesize()); size /= 2 {
		sizeErr := syscall.Fallocate(int(f.Fd()), keepSize, 0, size)
		if errors.Is(sizeErr, syscall.EOPNOTSUPP) {
			return nil // a file system where nothing can be reserved
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

// write appends a line to the journal. If the file system is full it uses the
// reserve, but not for first touches.
func (j *Journal) write(line []byte, first, locked bool) error {
	if err := j.keepReserve(); err != nil && first {
		return err
	}
	err := j.appendLine(line)
	if first || !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	// The part of the line that was written is torn, and compaction drops it.
	next := j.nextPath()
	if !locked {
		// The holder of the lock may be amid a compaction: the space of the
		// reserve is taken, and not its file.
		_ = os.Remove(next)
		next = fmt.Sprintf("%s.%d", next, os.Getpid())
	}
	if err := errors.Join(j.load(), j.compact(next)); err != nil {
		return err
	}
	return j.appendLine(line)
}

func (j *Journal) appendLine(line []byte) error {
	if j.torn { // end the torn line of a writer that died, so that ours stands alone
		line = append([]byte{'\n'}, line...)
	}
	f, err := os.OpenFile(j.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	_, err = f.Write(line)
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("append to %s: %w", j.path, err)
	}
	return nil
}

// writeNext writes the file that will take the journal's place. It does not
// truncate an empty one, which would give its space away.
func writeNext(next string, text []byte) error {
	f, err := os.OpenFile(next, os.O_WRONLY|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	if info, statErr := f.Stat(); statErr == nil && info.Size() > 0 { // of one who died
		err = f.Truncate(0)
	}
	_, writeErr := f.Write(text)
	return errors.Join(err, writeErr, f.Close())
}

// first reports whether an entry is about something that the journal does not
// know yet.
func (e *entry) first() bool {
	return e.Op == opMade || e.Op == opMadeControl && e.Inode == 0 || e.Op == opSpawned || e.Before != nil
}
