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
// values of its knobs in memory.
type bench struct {
	*Knobs
	journal *journal.Journal
	root    string     // the directory above the hierarchy
	mu      sync.Mutex // of values
	values  map[node.Knob]node.Value
	refuses map[node.Knob]bool
	writing func(node.Knob) // called before each write
	// stores returns the value that a knob has after the value to was written
	// to it, and the error of the write. now is the value before the write.
	stores func(k node.Knob, now, to node.Value) (node.Value, error)
}

// The hierarchies of a bench, as lines of mountinfo without the mount point.
const (
	onV2      = "cgroup2 cgroup2 rw"
	cpusetsV1 = "cgroup cgroup rw,cpuset"
)

// newBench returns a bench with the given hierarchy, which has no cgroups.
func newBench(t *testing.T, hierarchy string) *bench {
	t.Helper()
	b := &bench{
		root: t.TempDir(), values: map[node.Knob]node.Value{}, refuses: map[node.Knob]bool{}, writing: func(node.Knob) {},
		stores: func(_ node.Knob, _, to node.Value) (node.Value, error) { return to, nil },
	}
	put := func(name, text string) {
		t.Helper()
		path := filepath.Join(b.root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	put("proc/self/mountinfo", "31 24 0:28 / "+b.root+"/groups rw - "+hierarchy+"\n")
	put("groups/cgroup.controllers", "cpu memory\n")
	tree, err := cgroup.Detect(filepath.Join(b.root, "proc"))
	if err != nil {
		t.Fatal(err)
	}
	if b.journal, err = journal.Open(filepath.Join(b.root, "state"), "boot", journal.Session{PID: 1, Start: 1}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.journal.Close() })
	b.Knobs = New(Options{
		FS: proc.FS{Proc: filepath.Join(b.root, "proc"), Sys: filepath.Join(b.root, "sys")}, Tree: tree, Journal: b.journal,
		Saw: func(node.Knob, node.Value, error) {}, Releasing: func(node.Knob) {}, Released: func(node.Knob) error { return nil },
	})
	table := knob.Table{}
	for _, f := range []node.File{node.FileCPUMax, node.FileMemory, node.FilePIDs, node.FileCPUs} {
		table[f] = knob.Adapter{Read: b.readKnob, Write: b.writeKnob}
	}
	b.Use(table)
	return b
}

func (b *bench) readKnob(k node.Knob) (node.Value, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.values[k], nil
}

func (b *bench) writeKnob(k node.Knob, v node.Value) (err error) {
	b.writing(k)
	if b.refuses[k] {
		return syscall.EBUSY
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.values[k], err = b.stores(k, b.values[k], v)
	return err
}

// add adds a cgroup to a bench, and returns a knob of it with the given value.
func (b *bench) add(t *testing.T, p node.CgroupPath, f node.File, v node.Value) node.Knob {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(b.root, "groups", string(p)), 0o755); err != nil {
		t.Fatal(err)
	}
	k := node.Knob{Cgroup: p, File: f}
	b.values[k] = v
	return k
}

// plant returns a bench with n cgroups below be, which have a quota.
func plant(t *testing.T, n int) (*bench, []node.Knob) {
	t.Helper()
	b := newBench(t, onV2)
	var knobs []node.Knob
	for i := range n {
		knobs = append(knobs, b.add(t, node.CgroupPath(fmt.Sprintf("be/job-%04d", i)), node.FileCPUMax, node.Limit(2000)))
	}
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

func ok(t *testing.T, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// hasReleased checks that a knob has a value, and that the journal has
// forgotten the knob.
func (b *bench) hasReleased(t *testing.T, k node.Knob, want node.Value) {
	t.Helper()
	if got := b.values[k]; got != want {
		t.Errorf("%v has %v after the release, want %v", k, got, want)
	}
	if touch, left := b.touches(t)[k]; left {
		t.Errorf("the journal still has %v: %+v", k, touch)
	}
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
