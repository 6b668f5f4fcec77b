package journal

import (
	"bytes"
	"fmt"
)

// append calls the function decide with the present state, and writes the entry
// that decide returns. If decide returns nil, append writes nothing.
func (j *Journal) append(decide func(State) *entry) error {
	return j.appendAll(func(s State) []*entry {
		if e := decide(s); e != nil {
			return []*entry{e}
		}
		return nil
	})
}

// appendAll calls the function decide with the present state. It writes the
// entries that decide returns, all in one write(2). If the process is killed
// during the write, the file may have only the first of these entries.
func (j *Journal) appendAll(decide func(State) []*entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	locked, err := j.acquire()
	if err != nil {
		return fmt.Errorf("journal in %s: %w", j.dir, err)
	}
	defer j.release()
	if err := j.load(); err != nil {
		return err
	}
	if j.lost != "" {
		damage, err := j.repair(locked)
		if err != nil {
			return err
		}
		j.repaired = damage
	}
	es := decide(j.state)
	if len(es) == 0 {
		return nil
	}
	own, err := linesOf(j, es)
	if err != nil {
		return err
	}
	first, settled := false, false
	for _, e := range es {
		first, settled = first || e.isFirst(), settled || e.Op == opSettled
	}
	if err := j.write(own.text, first, locked); err != nil {
		return err
	}
	if err := j.loadKnowing(own); err != nil {
		return err
	}
	if settled { // the file may still lack its first line, and would count as damaged again
		j.state.Damage = ""
	}
	if locked && (settled || j.off > compactAbove && j.head.lines > 2*j.state.lines()) {
		if err := j.compact(j.nextPath()); err != nil {
			return err
		}
	}
	if locked && j.read != nil {
		j.noteExtent()
	}
	return nil
}

// linesOf returns the text of entries. If the file does not exist yet, the text
// also has the first line of a file. If the file was damaged, it also has a
// line about the damage.
func linesOf(j *Journal, es []*entry) (ownText, error) {
	before := []*entry{}
	switch {
	case j.read == nil:
		before = append(before, &entry{Op: opBegin})
	case j.state.Damage != "" && !j.head.noted:
		before = append(before, &entry{Op: opDamaged, Value: j.state.Damage})
	}
	es = append(before, es...)
	for _, e := range es {
		e.By = j.session
	}
	return textOf(es)
}

// An ownText is text that this process has written to the file, with the
// entries in it. This process need not parse the text again.
type ownText struct {
	text    []byte
	entries []*entry
}

// textOf returns the text of entries.
func textOf(es []*entry) (ownText, error) {
	var text []byte
	for _, e := range es {
		line, err := e.line()
		if err != nil {
			return ownText{}, fmt.Errorf("journal %v: %w", e.Op, err)
		}
		text = append(text, seal(line)...)
	}
	return ownText{text, es}, nil
}

// replayKnowing does the same as replay. If the text is the one that this process
// has just written, it uses the entries of own and does not parse the text.
func (s *State) replayKnowing(text []byte, f *file, own ownText) int {
	if len(own.entries) == 0 || !bytes.Equal(text, own.text) {
		return s.replay(text, f)
	}
	for _, e := range own.entries {
		f.lines++
		if s.apply(*e, f) != nil {
			s.Torn++
		}
	}
	return len(text)
}

// lines estimates how many lines a compacted file would have. A file is
// compacted when it has more than twice as many. So the cost of compaction is
// at most one line per entry, however many knobs the journal has.
func (s State) lines() int {
	return 1 + len(s.Groups) + len(s.Controls) + len(s.Enabled) + 2*len(s.Touches) + len(s.Processes)
}

func (w *Work) add(bytes int) { w.Writes, w.Bytes = w.Writes+1, w.Bytes+int64(bytes) }
