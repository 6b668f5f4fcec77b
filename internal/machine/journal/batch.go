package journal

import "tenon.sh/tenon/internal/model/node"

// An Intention is a write that Tenon is about to make. It changes the knob Knob
// from the value Before to Value. Inode is the inode number of the knob's cgroup.
type Intention struct {
	Knob          node.Knob
	Inode         uint64
	Before, Value node.Value
}

// An Outcome is the result of an intended write.
type Outcome struct {
	Knob node.Knob
	// Value is the value that the kernel shows after the write. It is nil if
	// the kernel refused the write and the knob stayed the same.
	Value node.Value
}

// IntendAll does the same as Intend, for several different knobs. It writes all
// entries at once, so that a hundred cost little more than one. After an error
// the caller must not write any of the knobs, although some entries may be in
// the journal.
func (j *Journal) IntendAll(all []Intention) error {
	return j.appendAll(func(s State) []*entry {
		es := make([]*entry, 0, len(all))
		for _, i := range all {
			es = append(es, s.intend(i))
		}
		return es
	})
}

// ConfirmAll calls Wrote or Abandon for each of several knobs, and writes to
// the file only once.
func (j *Journal) ConfirmAll(all []Outcome) error {
	return j.appendAll(func(s State) []*entry {
		es := make([]*entry, 0, len(all))
		for _, o := range all {
			if o.Value != nil {
				es = append(es, &entry{Op: opWrote, Knob: &o.Knob, Value: o.Value.String()})
			} else if e := s.abandon(o.Knob); e != nil {
				es = append(es, e)
			}
		}
		return es
	})
}

// ForgetAll does the same as Forget, for several knobs.
func (j *Journal) ForgetAll(all []node.Knob) error {
	return j.appendAll(func(s State) []*entry {
		es := make([]*entry, 0, len(all))
		for _, k := range all {
			if e := s.forget(k); e != nil {
				es = append(es, e)
			}
		}
		return es
	})
}

// Adopt makes knobs belong to this session, because the process that wrote them
// has ended. It does not change the values to restore.
func (j *Journal) Adopt(all []node.Knob) error {
	return j.appendAll(func(s State) []*entry {
		es := make([]*entry, 0, len(all))
		for _, k := range all {
			if e := s.adopt(k, j.session); e != nil {
				es = append(es, e)
			}
		}
		return es
	})
}

func (s State) intend(i Intention) *entry {
	e := &entry{Op: opIntend, Knob: &i.Knob, Inode: i.Inode, Value: i.Value.String()}
	if t, touched := s.Touches[i.Knob]; !touched || t.Inode != i.Inode {
		text := i.Before.String()
		e.Before = &text
	}
	return e
}

func (s State) abandon(k node.Knob) *entry {
	t, touched := s.Touches[k]
	switch {
	case !touched || t.Pending == nil:
		return nil
	case t.Written == nil:
		return &entry{Op: opForget, Knob: &k}
	}
	return &entry{Op: opWrote, Knob: &k, Value: t.Written.String()}
}

func (s State) forget(k node.Knob) *entry {
	if _, touched := s.Touches[k]; !touched {
		return nil
	}
	return &entry{Op: opForget, Knob: &k}
}

func (s State) adopt(k node.Knob, by Session) *entry {
	if t, touched := s.Touches[k]; !touched || t.By == by {
		return nil
	}
	return &entry{Op: opAdopt, Knob: &k}
}
