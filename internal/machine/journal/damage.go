package journal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"tenon.sh/tenon/internal/machine/statedir"
)

// The operations of lines about the file itself. A whole file begins with a
// line of opBegin. So a file that is empty or lacks its beginning is recognized
// as damaged.
const (
	opBegin   = "begin"
	opDamaged = "damaged" // Value describes the damage; a compaction keeps this line
	opSettled = "settled" // a restore has reported the damage
)

// lineStart is the beginning of each line. The text after the last newline may
// be a line that a killed writer left. If it does not begin with lineStart, it
// is damage.
const lineStart = `{"op":"`

// seal adds a check sum (CRC-32, IEEE) to a line as its last field, and then
// a newline.
func seal(line []byte) []byte {
	sum := crc32.ChecksumIEEE(line)
	return fmt.Appendf(line[:len(line)-1], sumField, sum)
}

const (
	sumField = ",\"sum\":\"%08x\"}\n"
	sumWidth = len(",\"sum\":\"00000000\"}")
)

// unseal returns a line without its check sum, and whether the check sum is
// right. Lines of earlier versions of Tenon have no check sum and count as
// right.
func unseal(line []byte) (bare []byte, right bool) {
	at := len(line) - sumWidth
	if at <= 0 || !bytes.HasPrefix(line[at:], []byte(`,"sum":"`)) {
		return line, true
	}
	bare = append(bytes.Clone(line[:at]), '}')
	return bare, string(line[at:])+"\n" == fmt.Sprintf(sumField, crc32.ChecksumIEEE(bare))
}

// findDamage says how the text of a file is damaged. If it is whole, findDamage
// returns "".
func findDamage(text []byte, read State, head file, rest []byte) string {
	switch first, _, _ := bytes.Cut(text, []byte{'\n'}); {
	case len(text) == 0:
		return "the file is empty"
	case read.Damage != "":
		return read.Damage
	case len(rest) > 0 && !likeLine(rest):
		return fmt.Sprintf("its last %d bytes are not an entry", len(rest))
	case bytes.Contains(first, []byte(`,"sum":"`)) && !head.begun:
		return "its beginning is missing"
	}
	return ""
}

// likeLine reports whether text may be the start of a line.
func likeLine(text []byte) bool {
	n := min(len(text), len(lineStart))
	return string(text[:n]) == lineStart[:n]
}

// lockName is the file whose lock all processes share. It also contains the
// journal's inode number and length after the last entry, and its name. The length
// shows whether a program has cut off the journal, even between two lines. The name
// has the boot: on a disk, a new journal may get the inode of that of the last boot.
const lockName = "journal.lock"

const extentForm = "%20d %20d %q\n"

// noteExtent writes the journal's present length to the lock file. If this
// fails, the next entry does it again.
func (j *Journal) noteExtent() {
	if st, is := j.read.Sys().(*syscall.Stat_t); is {
		_, _ = j.lock.WriteAt(fmt.Appendf(nil, extentForm, st.Ino, j.size, filepath.Base(j.path)), 0)
	}
}

// countMissing compares the file with the length in the lock file, and returns
// how many bytes are missing at the end of the file. It reads the length of the
// file last, because another process may be writing an entry: it records the
// length only after this.
func (j *Journal) countMissing(f *os.File) int64 {
	text, err := statedir.ReadFile(j.queue.Path)
	var inode uint64
	var size int64
	var name string
	if err != nil {
		return 0
	}
	if n, _ := fmt.Sscanf(string(text), "%d %d %q", &inode, &size, &name); n != 3 || name != filepath.Base(j.path) { //nolint:errcheck // the number of values tells
		return 0
	}
	info, err := f.Stat()
	if err != nil {
		return 0
	}
	if st, is := info.Sys().(*syscall.Stat_t); !is || st.Ino != inode {
		return 0
	}
	return max(size-info.Size(), 0)
}

// Damage says how another program damaged the file after this process had read
// it: removed, emptied, cut off or overwrote it. Until Repair is called, only
// this process has the entries, in its memory. If the file is whole, Damage
// returns "".
func (j *Journal) Damage() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return err.Error()
	}
	return j.lost
}

// Repair writes the file again if it was damaged after this process had read
// it. It returns the damage, or "" if the file was whole. If an entry has
// repaired the file since the last Repair, Repair returns that damage once. It
// cannot repair entries that other processes wrote after this process last read
// the file. Until Settle is called, lost says how such entries were lost. It is
// "" if none were.
func (j *Journal) Repair() (damage, lost string, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.load(); err != nil {
		return "", j.state.Damage, err
	}
	if j.lost == "" {
		damage, j.repaired = j.repaired, ""
		return damage, j.state.Damage, nil
	}
	locked, err := j.acquire()
	if err != nil {
		return j.lost, j.state.Damage, fmt.Errorf("repair the journal in %s: %w", j.dir, err)
	}
	defer j.release()
	damage, err = j.repair(locked)
	return damage, j.state.Damage, err
}

func (j *Journal) repair(locked bool) (damage string, err error) {
	damage = j.lost
	next := j.nextPath()
	if !locked {
		next = fmt.Sprintf("%s.%d", next, os.Getpid())
	}
	own, err := j.state.text()
	if err == nil {
		err = errors.Join(writeNext(next, own.text), os.Rename(next, j.path))
	}
	if err != nil {
		return damage, fmt.Errorf("repair %s, where %s: %w", j.path, damage, err)
	}
	j.lost, j.read = "", nil
	return damage, j.loadKnowing(own)
}

// Settle forgets that entries were lost. Call it after a restore has reported
// the loss.
func (j *Journal) Settle() error {
	return j.append(func(s State) *entry {
		if s.Damage == "" {
			return nil
		}
		return &entry{Op: opSettled}
	})
}

// load reads the part of the file that is new since the last load. If the file
// was replaced, it reads all of it. If another program has damaged the file,
// the state does not change, and the field lost says what happened.
func (j *Journal) load() error { return j.loadKnowing(ownText{}) }

// loadKnowing does the same as load. own is what this process has just written.
func (j *Journal) loadKnowing(own ownText) error {
	known := j.read != nil && !j.state.Empty()
	f, err := statedir.Open(j.path, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		if known {
			j.lost = "the file is gone"
			return nil
		}
		if j.read != nil {
			j.changes++
		}
		j.state, j.head, j.read, j.off, j.size, j.torn = newState(), file{}, nil, 0, 0, false
		return nil
	}
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	defer f.Close()
	if j.read == nil { // another user may have made the directory after Open
		if err := statedir.Check(j.dir); err != nil {
			return fmt.Errorf("journal: %w", err)
		}
	}
	info, err := f.Stat()
	if err != nil {
		return fmt.Errorf("journal: %w", err)
	}
	j.lost = ""
	state, head, off := j.state, j.head, j.off
	again := j.read == nil || !os.SameFile(j.read, info) || info.Size() < off || info.Size() == j.read.Size() && !info.ModTime().Equal(j.read.ModTime())
	// A file that was empty at the last look may be one that its first writer had only
	// made. That is no damage of what the file has now.
	if again || off == 0 {
		state, head, off = newState(), file{}, 0
	}
	rest, err := io.ReadAll(io.NewSectionReader(f, off, 1<<40))
	if err != nil {
		return fmt.Errorf("read %s: %w", j.path, err)
	}
	n := state.replayKnowing(rest, &head, own)
	if off == 0 {
		damage := findDamage(rest, state, head, rest[n:])
		if short := j.countMissing(f); damage == "" && short > 0 {
			damage = fmt.Sprintf("%d bytes are missing at its end", short)
		}
		if damage != "" && known {
			j.lost = damage
			return nil
		}
		state.Damage = damage
	}
	if off == 0 || n > 0 {
		j.changes++
	}
	j.state, j.head = state, head
	j.size = off + int64(len(rest))
	j.read, j.off, j.torn = info, off+int64(n), n < len(rest)
	return nil
}
