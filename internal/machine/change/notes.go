package change

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/partial"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// Tenon also attaches the values to restore to the cgroups themselves, as notes:
// extended attributes (package note). If the state directory is removed while no
// agent runs, the notes still show what Tenon changed. If the kernel allows no
// notes, only the journal has the values.

// madeNote is the name of the note which says that Tenon made the cgroup. Every
// other note is about one knob, and its name is the file of this knob.
const madeNote = "made"

// A record is the content of a note.
type record struct {
	Dir    string          `json:"dir"` // of the journal: another Tenon may have one elsewhere
	By     journal.Session `json:"by"`
	Before *string         `json:"before,omitempty"`
	Value  string          `json:"value,omitempty"`
}

// writeNote writes the note of a knob that Tenon is about to write.
func (c *Knobs) writeNote(k node.Knob, before, value node.Value) {
	if k.ControlGroup != "" || c.unnoted.Load() {
		return
	}
	text := before.String()
	c.write(k.Cgroup, string(k.File), record{Before: &text, Value: value.String()})
}

// NoteMade writes a note at a cgroup. The note says that Tenon made the cgroup.
func (c *Knobs) NoteMade(p node.CgroupPath) { c.write(p, madeNote, record{}) }

func (c *Knobs) write(p node.CgroupPath, name string, n record) {
	n.Dir, n.By = c.noteDir(), c.o.Journal.Session()
	text, err := json.Marshal(n)
	if err != nil {
		return
	}
	if err := cgroup.SetNote(c.home(p), name, string(text)); errors.Is(err, cgroup.ErrNoNotes) {
		c.unnoted.Store(true)
	}
}

// home returns the directory of a cgroup in the first hierarchy. The inode of
// this directory is the inode of the cgroup.
func (c *Knobs) home(p node.CgroupPath) string {
	for _, controller := range cgroup.Controllers() {
		if dir, err := c.o.Tree.Dir(controller, string(p)); err == nil {
			return dir
		}
	}
	return ""
}

func (c *Knobs) noteDir() string {
	dir := filepath.Dir(c.o.Journal.Path())
	if abs, err := filepath.Abs(dir); err == nil {
		return abs
	}
	return dir
}

// beforeAnother returns the value that a knob had before another Tenon, if it has the
// value now that this one has written, as its note says. That Tenon has another state
// directory, so its write is not in this journal. Without this, its value would count as
// the choice of the knob's owner, and a restore would leave it.
func (c *Knobs) beforeAnother(k node.Knob, now node.Value) (before node.Value, written bool) {
	if k.ControlGroup != "" || c.o.Tree == nil || c.unnoted.Load() {
		return nil, false
	}
	notes, err := cgroup.Notes(c.home(k.Cgroup))
	var n record
	if err != nil || json.Unmarshal([]byte(notes[string(k.File)]), &n) != nil {
		return nil, false // without a note, the present value is all that is known
	}
	t, whole := n.touch(k, 0)
	return t.Before, whole && t.Written == now
}

// Forget removes a knob from the journal and removes its note, because Tenon
// does not manage the knob any more.
func (c *Knobs) Forget(k node.Knob) error {
	c.forgetFormer(k)
	return errors.Join(unnote(c, k), c.o.Journal.Forget(k))
}

// Forget does the same as Knobs.Forget, for any number of knobs of any kind.
func (c ManyKnobs) Forget(knobs []node.Knob) error {
	var errs []error
	for _, k := range knobs {
		c.forgetFormer(k)
		errs = append(errs, unnote(c.Knobs, k))
	}
	return errors.Join(append(errs, c.o.Journal.ForgetAll(knobs))...)
}

// unnote removes the note of a knob.
func unnote(c *Knobs, k node.Knob) error {
	if k.ControlGroup != "" || c.o.Tree == nil || c.unnoted.Load() {
		return nil
	}
	if err := cgroup.DropNote(c.home(k.Cgroup), string(k.File)); !errors.Is(err, cgroup.ErrNoNotes) {
		return err
	}
	return nil
}

// LostChanges returns changes that are in the notes of the cgroups but not in
// the given state of the journal. If the journal has an entry of the knob, the
// change counts as lost only if the knob still has the value of the note. It
// ignores notes of other journals, and those of running processes that write another
// journal. With a partial.Error, it has read the notes of all other cgroups.
func (c *Knobs) LostChanges(known journal.State, paths []string) (journal.State, []Running, error) {
	lost := journal.State{Touches: map[node.Knob]journal.Touch{}, Groups: map[node.CgroupPath]journal.Session{}}
	dir, authors := c.noteDir(), authorsOf(c, known)
	err := eachNote(c, paths, func(p node.CgroupPath, name string, n record) {
		if n.Dir != dir || authors.writesElsewhere(n.By, name == madeNote) {
			return
		}
		if name == madeNote {
			if _, made := known.Groups[p]; !made {
				lost.Groups[p] = n.By
			}
			return
		}
		k := node.Knob{Cgroup: p, File: node.File(name)}
		inode, err := c.Inode(k)
		t, ok := n.touch(k, inode)
		if err != nil || !ok {
			return
		}
		if old, touched := known.Touches[k]; touched && old.Inode == inode && !lostItsEnd(c, k, old, t.Written) {
			return
		}
		lost.Touches[k] = t
	})
	return lost, authors.running(), err
}

// eachNote calls see with each note at the given cgroups and at the root. It
// ignores what is no note of Tenon. With a partial.Error, it has read the notes of
// all other cgroups.
func eachNote(c *Knobs, paths []string, see func(p node.CgroupPath, name string, n record)) error {
	missed := &partial.Error{}
	paths = slices.Concat([]string{""}, paths)
	type reading struct {
		notes map[string]string
		err   error
	}
	read := make([]reading, len(paths))
	onAllCPUs(len(paths), func(i int) { read[i].notes, read[i].err = cgroup.Notes(c.home(node.CgroupPath(paths[i]))) })
	for i, path := range paths {
		notes, err := read[i].notes, read[i].err
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, cgroup.ErrNoNotes) {
			missed.Add(path, err)
		}
		for name, text := range notes {
			var n record
			if json.Unmarshal([]byte(text), &n) == nil {
				see(node.CgroupPath(path), name, n)
			}
		}
	}
	return missed.OrNil()
}

// An Elsewhere says what a Tenon with another state directory has changed and not
// undone, by the notes at the cgroups.
type Elsewhere struct {
	StateDir string `json:"state_dir"`
	Knobs    int    `json:"knobs"`
	Groups   int    `json:"groups"` // that it made
	// PID is a process that made some of the changes and still runs, so that they
	// are no remains; 0: there is none.
	PID int `json:"pid,omitempty"`
}

// FindElsewhere returns the changes of those Tenons that have another state
// directory, in the order of these directories. This Tenon cannot undo them,
// because they are in other journals.
func FindElsewhere(c *Knobs, paths []string) ([]Elsewhere, error) {
	own, found, authors := c.noteDir(), map[string]Elsewhere{}, map[journal.Session]int{}
	err := eachNote(c, paths, func(_ node.CgroupPath, name string, n record) {
		if n.Dir == own || n.Dir == "" {
			return
		}
		pid, known := authors[n.By]
		if !known {
			if running, runs := FindProcess(c.o.FS, author(n.By)); runs {
				pid = running
			}
			authors[n.By] = pid
		}
		e := found[n.Dir]
		e.StateDir, e.PID = n.Dir, max(e.PID, pid)
		if name == madeNote {
			e.Groups++
		} else {
			e.Knobs++
		}
		found[n.Dir] = e
	})
	return slices.SortedFunc(maps.Values(found), func(a, b Elsewhere) int { return strings.Compare(a.StateDir, b.StateDir) }), err
}

// lostItsEnd reports whether the journal has lost the last write of a knob,
// because its file was cut. t is the entry of the knob, and noted the last value
// for which Tenon has written a note. Without this, a value of Tenon would count
// as one of another component. noted alone proves nothing: the kernel may have
// stored another value, or refused the note of a later write.
func lostItsEnd(c *Knobs, k node.Knob, t journal.Touch, noted node.Value) bool {
	if noted == t.Before || noted == t.Written || noted == t.Pending {
		return false
	}
	now, err := c.table.Read(k)
	return err == nil && now == noted
}

// touch returns the journal entry that corresponds to the note.
func (n record) touch(k node.Knob, inode uint64) (journal.Touch, bool) {
	if n.Before == nil {
		return journal.Touch{}, false
	}
	before, err := node.ParseValue(k.File, *n.Before)
	value, wrong := node.ParseValue(k.File, n.Value)
	return journal.Touch{Inode: inode, Before: before, Written: value, Pending: value, By: n.By}, err == nil && wrong == nil
}

// recover adds to the journal the changes that only the notes have. It returns
// how many knobs and cgroups it added. With a partial.Error, it has added those
// of all other cgroups.
func (c *Knobs) recover() (int, error) {
	if c.o.Tree == nil {
		return 0, nil
	}
	state, err := c.o.Journal.State()
	if err != nil {
		return 0, err
	}
	paths, err := c.o.Tree.Paths()
	if err != nil && !partial.Is(err) {
		return 0, err
	}
	lost, _, missed := c.LostChanges(state, paths) // the notes of a running process are its own
	errs := []error{err, missed}
	for k, t := range lost.Touches {
		if t.By != c.o.Journal.Session() && Alive(c.o.FS, journal.Process{PID: t.By.PID, Start: t.By.Start}) {
			continue // that process still writes the note
		}
		errs = append(errs, c.enter(k, t.Inode, t.Before, t.Written), c.o.Journal.Rebase(k, t.Before))
	}
	for p := range lost.Groups {
		errs = append(errs, c.o.Journal.RecordGroup(p))
	}
	return len(lost.Touches) + len(lost.Groups), errors.Join(errs...)
}
