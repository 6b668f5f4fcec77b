package change

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/machine/knob"
	"tenon.sh/tenon/internal/model/node"
)

// A bench is a simulated node and the Knobs that change it. The node has the
// values of its quotas in memory.
type bench struct {
	*Knobs
	journal *journal.Journal
	mu      sync.Mutex // of values
	values  map[node.Knob]node.Value
	refuses map[node.Knob]bool
	writing func(node.Knob) // called before each write
}

// plant returns a bench with n cgroups below be.
func plant(t *testing.T, n int) (*bench, []node.Knob) {
	t.Helper()
	root := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	put("proc/self/mountinfo", "31 24 0:28 / "+root+"/v2 rw - cgroup2 cgroup2 rw\n")
	put("v2/cgroup.controllers", "cpu\n")
	tree, err := cgroup.Detect(filepath.Join(root, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{values: map[node.Knob]node.Value{}, refuses: map[node.Knob]bool{}, writing: func(node.Knob) {}}
	var knobs []node.Knob
	for i := range n {
		k := node.Knob{Cgroup: node.CgroupPath(fmt.Sprintf("be/job-%04d", i)), File: node.FileCPUMax}
		if err := os.MkdirAll(filepath.Join(root, "v2", string(k.Cgroup)), 0o755); err != nil {
			t.Fatal(err)
		}
		knobs, b.values[k] = append(knobs, k), node.Limit(2000)
	}
	if b.journal, err = journal.Open(filepath.Join(root, "state"), "boot", journal.Session{PID: 1, Start: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.journal.Close() })
	b.Knobs = New(Options{
		FS: proc.FS{Proc: filepath.Join(root, "proc")}, Tree: tree, Journal: b.journal,
		Saw: func(node.Knob, node.Value, error) {}, Releasing: func(node.Knob) {}, Released: func(node.Knob) error { return nil },
	})
	b.Use(knob.Table{node.FileCPUMax: {
		Read: func(k node.Knob) (node.Value, error) {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.values[k], nil
		},
		Write: func(k node.Knob, v node.Value) error {
			b.writing(k)
			if b.refuses[k] {
				return syscall.EBUSY
			}
			b.mu.Lock()
			defer b.mu.Unlock()
			b.values[k] = v
			return nil
		},
	}})
	return b, knobs
}

func (b *bench) setAll(knobs []node.Knob, to node.Value) []error {
	all := make([]Change, 0, len(knobs))
	for _, k := range knobs {
		all = append(all, Change{Knob: k, To: to})
	}
	return ManyKnobs{b.Knobs}.Set(all)
}

func (b *bench) releaseAll(knobs []node.Knob) []error { return ManyKnobs{b.Knobs}.Release(knobs) }

// touches returns the journal entries as a process that starts now would read
// them.
func (b *bench) touches(t *testing.T) map[node.Knob]journal.Touch {
	t.Helper()
	j, err := journal.Open(filepath.Dir(b.journal.Path()), "boot", journal.Session{PID: 2, Start: 2})
	if err != nil {
		t.Fatal(err)
	}
	s, err := j.State()
	if err != nil {
		t.Fatal(err)
	}
	return s.Touches
}

// TestTheJournalKnowsEachOfManyKnobsBeforeTheFirstWrite stops the process at
// each write in turn. After each stop, a restore must be possible.
func TestTheJournalKnowsEachOfManyKnobsBeforeTheFirstWrite(t *testing.T) {
	b, knobs := plant(t, 20)
	writes := 0
	b.writing = func(node.Knob) {
		if writes++; writes != 1 && writes != 11 {
			return
		}
		known := b.touches(t)
		for _, k := range knobs {
			if touch := known[k]; touch.Before != node.Value(node.Limit(2000)) || touch.Pending != node.Value(node.Limit(100)) {
				t.Errorf("at write %d the journal has %+v of %v", writes, touch, k)
			}
		}
	}
	if err := errors.Join(b.setAll(knobs, node.Limit(100))...); err != nil {
		t.Fatal(err)
	}
	for k, touch := range b.touches(t) {
		if touch.Written != node.Value(node.Limit(100)) || touch.Pending != nil {
			t.Errorf("afterwards the journal has %+v of %v", touch, k)
		}
	}
	if err := errors.Join(b.releaseAll(knobs)...); err != nil || len(b.touches(t)) != 0 {
		t.Errorf("%v; the journal has %v", err, b.touches(t))
	}
	for _, k := range knobs {
		if b.values[k] != node.Value(node.Limit(2000)) {
			t.Errorf("%v has %v", k, b.values[k])
		}
	}
}

// TestOneRefusalAmongManyIsThatOfOneKnob makes the kernel refuse some of many
// writes. For each knob, it checks the error and the journal entry.
func TestOneRefusalAmongManyIsThatOfOneKnob(t *testing.T) {
	b, knobs := plant(t, 9)
	b.refuses[knobs[4]] = true
	for i, err := range b.setAll(knobs, node.Limit(100)) {
		_, known := b.touches(t)[knobs[i]]
		if refused := i == 4; errors.Is(err, syscall.EBUSY) != refused || known == refused {
			t.Errorf("%v: %v, in the journal: %v", knobs[i], err, known)
		}
	}
	b.refuses[knobs[4]], b.refuses[knobs[7]] = false, true
	for i, err := range b.releaseAll(knobs) {
		_, known := b.touches(t)[knobs[i]]
		if refused := i == 7; errors.Is(err, syscall.EBUSY) != refused || known != refused {
			t.Errorf("release of %v: %v, in the journal: %v", knobs[i], err, known)
		}
	}
}

// TestAThousandGroupsCostAFewWritesOfTheJournal makes many cgroups appear at
// once, get limits, and be released. It counts the writes of the journal.
func TestAThousandGroupsCostAFewWritesOfTheJournal(t *testing.T) {
	const groups = 1000
	b, knobs := plant(t, groups)
	for rest := knobs; len(rest) > 0; {
		n := CountTogether(len(rest), func(i int) node.Knob { return rest[i] })
		if err := errors.Join(b.setAll(rest[:n], node.Limit(100))...); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if w := b.journal.Work(); w.Writes > 2*(groups/MaxKnobs+1)+2 || w.Bytes > groups*3*256 {
		t.Errorf("to bind %d groups cost %+v", groups, w)
	}
	for rest := knobs; len(rest) > 0; {
		n := CountTogether(len(rest), func(i int) node.Knob { return rest[i] })
		if err := errors.Join(b.releaseAll(rest[:n])...); err != nil {
			t.Fatal(err)
		}
		rest = rest[n:]
	}
	if w := b.journal.Work(); w.Writes > 4*(groups/MaxKnobs+1)+4 || w.Bytes > groups*6*256 {
		t.Errorf("to bind and give back %d groups cost %+v", groups, w)
	}
}

// TestFilesOfACgroupArePlain checks that IsPlain returns true for every knob
// that consists of files of a cgroup. Otherwise the knob would be journaled
// alone, which is slow, but which no other test shows.
func TestFilesOfACgroupArePlain(t *testing.T) {
	for _, f := range node.AllFiles {
		if got, want := IsPlain(node.Knob{Cgroup: "a", File: f}), f.Category() == node.CategoryGroup; got != want {
			t.Errorf("%s: plain %t, want %t", f, got, want)
		}
	}
}

func TestOnlyPlainKnobsOfOneDepthGoTogether(t *testing.T) {
	at := func(p node.CgroupPath, f node.File) node.Knob { return node.Knob{Cgroup: p, File: f} }
	for want, knobs := range map[int][]node.Knob{
		0: nil,
		1: {at("a", node.FileScheduler), at("a", node.FileCPUMax)},
		2: {at("a/b", node.FileCPUMax), at("a/c", node.FileCPUs), at("a", node.FileCPUs)},
		3: {at("a", node.FileCPUMax), at("b", node.FileMemory), at("c", node.FileMems), at("d", node.FileRun)},
	} {
		if got := CountTogether(len(knobs), func(i int) node.Knob { return knobs[i] }); got != want {
			t.Errorf("%d of %v, want %d", got, knobs, want)
		}
	}
	var many []node.Knob
	for i := range 2 * MaxKnobs {
		many = append(many, at(node.CgroupPath(fmt.Sprint(i)), node.FileCPUMax))
	}
	if got := CountTogether(len(many), func(i int) node.Knob { return many[i] }); got != MaxKnobs {
		t.Errorf("%d of %d, want %d", got, len(many), MaxKnobs)
	}
}
