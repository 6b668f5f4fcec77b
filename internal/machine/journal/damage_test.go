package journal_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// damages are ways in which another program may damage the journal's file.
var damages = map[string]func(t *testing.T, path string){
	"directory removed": func(t *testing.T, path string) { do(t, os.RemoveAll(filepath.Dir(path))) },
	"file removed":      func(t *testing.T, path string) { do(t, os.Remove(path)) },
	"emptied":           func(t *testing.T, path string) { do(t, os.Truncate(path, 0)) },
	"zeroed": func(t *testing.T, path string) {
		rewrite(t, path, func(b []byte) []byte { clear(b); return b })
	},
	"garbage": func(t *testing.T, path string) {
		rewrite(t, path, func([]byte) []byte { return []byte("not\na\njournal\n") })
	},
	"cut between two entries": func(t *testing.T, path string) {
		rewrite(t, path, func(b []byte) []byte { return b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1] })
	},
	"cut within an entry": func(t *testing.T, path string) {
		rewrite(t, path, func(b []byte) []byte { return b[:len(b)-20] })
	},
	"beginning removed": func(t *testing.T, path string) {
		rewrite(t, path, func(b []byte) []byte { return b[bytes.IndexByte(b, '\n')+1:] })
	},
	"one digit changed": func(t *testing.T, path string) {
		rewrite(t, path, func(b []byte) []byte {
			return bytes.Replace(b, []byte(`"before":"200000`), []byte(`"before":"900000`), 1)
		})
	},
}

// rewrite changes the content of a file in place.
func rewrite(t *testing.T, path string, change func([]byte) []byte) {
	t.Helper()
	text, err := os.ReadFile(path)
	do(t, err)
	do(t, os.WriteFile(path, change(text), 0o644))
}

// writeJournal returns a journal with two knobs, and its entries.
func writeJournal(t *testing.T) (*journal.Journal, map[node.Knob]journal.Touch) {
	t.Helper()
	j := open(t, filepath.Join(t.TempDir(), "state"), me)
	do(t, j.Intend(quota, 2, node.Limit(2000), node.Limit(1000)), j.RecordValue(quota, node.Limit(1000)),
		j.Intend(weight, 5, odd, idle), j.RecordValue(weight, idle))
	return j, state(t, j).Touches
}

// TestAProcessRepairsTheJournalThatItHasRead checks that the entries survive
// each kind of damage. The process has them in its memory.
func TestAProcessRepairsTheJournalThatItHasRead(t *testing.T) {
	for name, damage := range damages {
		for _, by := range []string{"repair", "the next entry"} {
			t.Run(name+"/"+by, func(t *testing.T) {
				j, want := writeJournal(t)
				damage(t, j.Path())
				if j.Damage() == "" {
					t.Error("the damage was not noticed")
				}
				if by != "repair" {
					do(t, j.Intend(quota, 2, node.Limit(2000), node.Limit(500)), j.RecordValue(quota, node.Limit(500)))
					q := want[quota]
					q.Written = node.Limit(500)
					want[quota] = q
				}
				if was, _, err := j.Repair(); err != nil || was == "" {
					t.Errorf("repair: %q, %v", was, err)
				}
				if was, _, err := j.Repair(); was != "" || err != nil {
					t.Errorf("repaired twice: %q, %v", was, err)
				}
				after := state(t, open(t, filepath.Dir(j.Path()), lab))
				if d := cmp.Diff(want, after.Touches); d != "" || after.Damage != "" {
					t.Errorf("a new reader: damage %q\n%s", after.Damage, d)
				}
			})
		}
	}
}

// TestANewReaderSeesThatEntriesWereLost checks a process that has not read the
// entries. It must report that they are lost. It must report this even after it
// has written entries itself and compacted the file, until a restore settles
// the loss. But if the whole journal was removed, the directory shows no trace
// of it.
func TestANewReaderSeesThatEntriesWereLost(t *testing.T) {
	for name, damage := range damages {
		if strings.HasSuffix(name, "removed") && name != "beginning removed" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			j, _ := writeJournal(t)
			damage(t, j.Path())
			dir := filepath.Dir(j.Path())
			reader := open(t, dir, lab)
			first := state(t, reader).Damage
			if first == "" {
				t.Fatal("no damage is seen")
			}
			for i := range 2000 { // enough to cause a compaction
				v := node.Limit(unit.MilliCPU(100 + i))
				do(t, reader.Intend(quota, 2, node.Limit(2000), v), reader.RecordValue(quota, v))
			}
			if d := state(t, open(t, dir, me)).Damage; d != first {
				t.Errorf("damage %q, later %q", first, d)
			}
			do(t, reader.Settle())
			if d := state(t, open(t, dir, me)).Damage; d != "" {
				t.Errorf("damage %q after it was settled", d)
			}
		})
	}
}

// TestDamageIsReportedOnce settles the loss of entries at once, as a restore does
// when it has nothing else to do. No later process may report the same loss again.
func TestDamageIsReportedOnce(t *testing.T) {
	for name, damage := range damages {
		if strings.HasSuffix(name, "removed") && name != "beginning removed" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			j, _ := writeJournal(t)
			damage(t, j.Path())
			dir := filepath.Dir(j.Path())
			reader := open(t, dir, lab)
			left := state(t, reader)
			do(t, reader.Settle())
			for _, by := range []*journal.Journal{reader, open(t, dir, me)} {
				if s := state(t, by); s.Damage != "" || cmp.Diff(left.Touches, s.Touches) != "" {
					t.Errorf("damage %q after it was settled; it has %v, and had %v", s.Damage, s.Touches, left.Touches)
				}
			}
		})
	}
}

// TestWhatAKilledWriterLeavesIsNoDamage checks two things that must not count
// as damage: the start of a line that a killed writer left, and lines without a
// check sum from an earlier version of Tenon.
func TestWhatAKilledWriterLeavesIsNoDamage(t *testing.T) {
	const old = `{"op":"made","cgroup":"be","by":{"pid":1,"start":2}}` + "\n"
	for name, change := range map[string]func([]byte) []byte{
		"torn tail":         func(b []byte) []byte { return append(b, `{"op":"wro`...) },
		"torn after a byte": func(b []byte) []byte { return append(b, '{') },
		"torn and ended":    func(b []byte) []byte { return append(b, `{"op":"wrote","knob"`+"\n"...) },
		"earlier version":   func([]byte) []byte { return []byte(old) },
		"both versions":     func(b []byte) []byte { return append(b, old...) },
	} {
		t.Run(name, func(t *testing.T) {
			j, _ := writeJournal(t)
			rewrite(t, j.Path(), change)
			if name == "earlier version" { // the earlier version did not record the length
				do(t, os.Truncate(filepath.Join(filepath.Dir(j.Path()), "journal.lock"), 0))
			}
			if d := state(t, open(t, filepath.Dir(j.Path()), lab)).Damage; d != "" {
				t.Errorf("damage %q", d)
			}
		})
	}
}

// TestAFileThatIsMadeBeforeItIsWrittenIsNoDamage has a process that reads the file
// between the two system calls of its first writer. The process must not report
// that entries were lost, nor write this into the file.
func TestAFileThatIsMadeBeforeItIsWrittenIsNoDamage(t *testing.T) {
	j := open(t, t.TempDir(), me)
	do(t, os.WriteFile(j.Path(), nil, 0o600))
	reader := open(t, filepath.Dir(j.Path()), lab)
	state(t, reader)
	whole := open(t, t.TempDir(), me)
	do(t, whole.RecordGroup("be"))
	text, err := os.ReadFile(whole.Path())
	do(t, err)
	f, err := os.OpenFile(j.Path(), os.O_WRONLY|os.O_APPEND, 0)
	do(t, err)
	_, err = f.Write(text)
	do(t, err, f.Close())
	if s := state(t, reader); s.Damage != "" || len(s.Groups) != 1 {
		t.Errorf("damage %q, groups %v", s.Damage, s.Groups)
	}
	do(t, reader.RecordGroup("be/a"))
	if s := state(t, open(t, filepath.Dir(j.Path()), me)); s.Damage != "" || len(s.Groups) != 2 {
		t.Errorf("a new reader: damage %q, groups %v", s.Damage, s.Groups)
	}
}

// TestDamageIsSeenWithoutTheRecordOfTheLength checks that an empty file, and
// one without its first line, count as damaged, whatever the lock file says.
func TestDamageIsSeenWithoutTheRecordOfTheLength(t *testing.T) {
	for _, name := range []string{"emptied", "beginning removed", "zeroed", "garbage", "one digit changed"} {
		t.Run(name, func(t *testing.T) {
			j, _ := writeJournal(t)
			damages[name](t, j.Path())
			do(t, os.Remove(filepath.Join(filepath.Dir(j.Path()), "journal.lock")))
			if state(t, open(t, filepath.Dir(j.Path()), lab)).Damage == "" {
				t.Error("no damage is seen")
			}
		})
	}
}

// TestTheLengthOfTheLastBootIsNotMissed has a state directory on a disk, where the
// journal of a boot gets the inode of the journal of the boot before. The new
// journal is shorter, and lacks nothing.
func TestTheLengthOfTheLastBootIsNotMissed(t *testing.T) {
	j, _ := writeJournal(t)
	do(t, j.Close())
	dir := filepath.Dir(j.Path())
	other := t.TempDir()
	for _, at := range []string{other, dir} {
		next, err := journal.Open(at, "boot-2", lab)
		do(t, err)
		if at == dir { // it has the inode of j, and what another journal of its boot has
			text, err := os.ReadFile(filepath.Join(other, filepath.Base(next.Path())))
			do(t, err, os.Rename(j.Path(), next.Path()), os.WriteFile(next.Path(), text, 0o600))
		} else {
			do(t, next.RecordGroup("be"))
		}
		if s := state(t, next); s.Damage != "" || len(s.Groups) != 1 {
			t.Errorf("damage %q, groups %v", s.Damage, s.Groups)
		}
		do(t, next.Close())
	}
}

// TestOnlyTheOwnerReadsTheJournal checks that only the owner can read the
// files. A process that can read a lock file can hold the lock, and the journal
// names all work of the machine.
func TestOnlyTheOwnerReadsTheJournal(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	j, err := journal.Open(dir, "boot", journal.Session{PID: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := j.RecordGroup("a"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 2 {
		t.Fatal(entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", e.Name(), info.Mode(), err)
		}
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory: %v %v", info.Mode(), err)
	}
}

// TestEntriesThatArriveDuringAReadAreNotMissing makes one process write while others
// begin to read. A reader may then find the length of a later journal in the lock file.
func TestEntriesThatArriveDuringAReadAreNotMissing(t *testing.T) {
	dir := t.TempDir()
	j := open(t, dir, me)
	var all []journal.Intention
	var knobs []node.Knob
	for i := range 200 {
		k := node.Knob{Cgroup: node.CgroupPath(fmt.Sprintf("be/job-%d", i)), File: node.FileCPUs}
		all, knobs = append(all, journal.Intention{Knob: k, Inode: 1, Before: node.CPUs{}, Value: node.CPUs{}}), append(knobs, k)
	}
	do(t, j.RecordGroup("be"))
	done := make(chan error)
	go func() {
		var errs []error
		for range 100 {
			errs = append(errs, j.IntendAll(all), j.ForgetAll(knobs))
		}
		done <- errors.Join(errs...)
	}()
	for {
		select {
		case err := <-done:
			do(t, err)
			return
		default:
		}
		s, err := open(t, dir, lab).State()
		if do(t, err); s.Damage != "" {
			t.Error(s.Damage)
			do(t, <-done)
			return
		}
	}
}
