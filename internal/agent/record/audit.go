package record

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/node"
)

const (
	// DefaultAuditSize is the default size of the log in bytes, for some four
	// thousand writes. When AuditFile reaches it, the file is renamed to
	// AuditFileOld, and a new file begins. So there are at most two files.
	DefaultAuditSize = 1 << 20
	// AuditFile is the present log. AuditFileOld contains the lines before it.
	AuditFile    = "audit.jsonl"
	AuditFileOld = "audit.1.jsonl"
	// maxQueued is the maximum number of ticks with writes that wait for a slow
	// disk. The writes of further ticks are lost, and these ticks are counted.
	maxQueued = 256
)

// A Write is a line of the audit log: a written value, its policy and the
// reason. Its JSON keys are stable.
type Write struct {
	At time.Time `json:"at"`
	By string    `json:"by"` // the policy that owns the knob
	node.Knob
	Old string `json:"old"` // "?": the value could not be read
	New string `json:"new"`
	Why string `json:"why"`
	// Woken describes the events that started the tick early. It is empty for a
	// tick without events.
	Woken string `json:"woken,omitempty"`
	// Release means that Tenon restored the original value and released the knob.
	Release bool   `json:"release,omitempty"`
	Outcome string `json:"outcome"` // applied or failed
	Error   string `json:"error,omitempty"`
	// Repeated is the number of times that this write failed again in the same way
	// since the last line about this knob.
	Repeated int `json:"repeated,omitempty"`
	// Lost is the number of ticks before this line whose writes the log lacks,
	// because the disk was full or too slow.
	Lost int `json:"lost,omitempty"`
}

// The results of a write.
const (
	Applied = "applied"
	Failed  = "failed"
)

// An Audit writes the audit log, which has a bounded size. Record never waits
// for the disk.
type Audit struct {
	path, old string
	size      int64
	complain  func(error)
	failing   map[node.Knob]failure

	queue  chan []Write
	mu     sync.Mutex // guards lost
	lost   int
	ended  chan struct{}
	broken bool // the last line could not be written
}

// A failure is the text of a write's error. times counts how often the write of
// the knob has failed again with this text.
type failure struct {
	text  string
	times int
}

// OpenAudit opens the log in dir. A size of 0 means DefaultAuditSize. If the
// log cannot be written, it calls complain once. It does so again only after a
// write has succeeded.
func OpenAudit(dir string, size int64, complain func(error)) *Audit {
	a := &Audit{
		path: filepath.Join(dir, AuditFile), old: filepath.Join(dir, AuditFileOld),
		size: cmp.Or(size, DefaultAuditSize), complain: complain, failing: map[node.Knob]failure{},
		queue: make(chan []Write, maxQueued), ended: make(chan struct{}),
	}
	go a.run()
	return a
}

// Record adds the writes of a tick. It must not be called after Close.
func (a *Audit) Record(t tick.Tick) {
	writes := a.writesOf(t)
	if len(writes) == 0 {
		return
	}
	select {
	case a.queue <- writes:
	default:
		a.mu.Lock()
		defer a.mu.Unlock()
		a.lost++
	}
}

// writesOf returns the writes of a tick. It omits a write that failed in the
// same way in the last tick, because Tenon repeats such a write in every tick.
func (a *Audit) writesOf(t tick.Tick) []Write {
	var writes []Write
	failing := map[node.Knob]failure{}
	for _, o := range t.Done {
		w := WriteOf(t, o)
		w.At = t.Begun // readers compare the lines with those of the log
		last, failed := a.failing[w.Knob]
		if failed && last.text == w.Error {
			last.times++
			failing[w.Knob] = last
			continue
		}
		w.Repeated = last.times
		if w.Outcome == Failed {
			failing[w.Knob] = failure{text: w.Error}
		}
		writes = append(writes, w)
	}
	a.failing = failing
	return writes
}

// WriteOf returns the line of the audit log for one step of a tick.
func WriteOf(t tick.Tick, o tick.Outcome) Write {
	s := o.Step
	w := Write{
		At: t.Snapshot.At, By: s.Owner.String(), Knob: s.Knob, Old: textOf(s.From), New: textOf(s.To),
		Why: s.Reason, Woken: tick.DescribeEvents(t.Events), Release: s.Release, Outcome: Applied,
	}
	if o.Err != nil {
		w.Outcome, w.Error = Failed, errorOf(s, o.Err)
	}
	return w
}

// errorOf returns the text of an error without the step at its beginning,
// because the line of the log already contains the step. The step also differs
// from tick to tick, so that equal failures would look different.
func errorOf(s plan.Step, err error) string {
	text := err.Error()
	if inner := errors.Unwrap(err); inner != nil && text == fmt.Sprintf("apply %v: %v", s, inner) {
		text = inner.Error()
	}
	return text
}

// run writes the queued lines until Close is called.
func (a *Audit) run() {
	defer close(a.ended)
	for writes := range a.queue {
		a.mu.Lock()
		writes[0].Lost, a.lost = a.lost, 0
		a.mu.Unlock()
		err := a.write(writes)
		if err != nil {
			a.mu.Lock()
			a.lost += writes[0].Lost + 1
			a.mu.Unlock()
			if !a.broken {
				a.complain(fmt.Errorf("audit log: writes are lost: %w", err))
			}
		}
		a.broken = err != nil
	}
}

// write appends the lines with one write(2).
func (a *Audit) write(writes []Write) (err error) {
	var text []byte
	for _, w := range writes {
		line, err := printable.Marshal(w)
		if err != nil {
			return err
		}
		text = append(append(text, line...), '\n')
	}
	if info, err := os.Stat(a.path); err == nil && info.Size() > 0 && info.Size()+int64(len(text)) > a.size {
		if err := os.Rename(a.path, a.old); err != nil {
			return err
		}
	}
	f, err := statedir.Open(a.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	begin, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := f.Write(text); err != nil {
		// The disk is full. Remove the part that was written, so that the log has no
		// incomplete line.
		return errors.Join(err, f.Truncate(begin))
	}
	return nil
}

// Close writes the queued lines, and ends the log.
func (a *Audit) Close() {
	close(a.queue)
	<-a.ended
}
