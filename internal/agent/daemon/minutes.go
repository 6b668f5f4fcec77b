package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"tenon.sh/tenon/internal/agent/history"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// minutes writes the history of the node. Another goroutine writes, because a
// slow disk must not delay a tick.
type minutes struct {
	log   *slog.Logger
	meter history.Meter
	queue chan written
	late  bool // the last minute did not fit into the queue
}

// A written is a minute, and where it goes.
type written struct {
	minute history.Minute
	to     config.History
}

func openMinutes(log *slog.Logger) *minutes { return &minutes{log: log, queue: make(chan written, 4)} }

// tick adds a tick to the minute. A minute that the disk is too slow for is a hole.
func (m *minutes) tick(t tick.Tick, to config.History) {
	if t.Snapshot.At.IsZero() || to.Directory == "" {
		return
	}
	done, complete := m.meter.Observe(t.Begun, &t.Snapshot, roomNow(t.Batch))
	if !complete {
		return
	}
	select {
	case m.queue <- written{done, to}:
		m.late = false
	default:
		if !m.late {
			m.log.Warn("minutes are missing from the history: the disk is too slow", "directory", to.Directory)
		}
		m.late = true
	}
}

// run writes minutes until ctx ends.
func (m *minutes) run(ctx context.Context) {
	var store *history.Store
	var at config.History
	failed := ""
	shut := func() {
		if store != nil {
			m.say(&failed, store.Close())
		}
		store = nil
	}
	defer shut()
	for {
		select {
		case <-ctx.Done():
			return
		case w := <-m.queue:
			if store != nil && w.to != at {
				shut()
			}
			var err error
			if store == nil {
				store, err = history.Open(w.to.Directory, w.to.Size)
				at = w.to
			}
			if err == nil {
				err = store.Append(w.minute)
			}
			if err == nil && store.Left() > 0 {
				err = errRows
			}
			m.say(&failed, err)
		}
	}
}

// errRows is logged if a minute of the history has room for a part of its rows only.
var errRows = errors.New("a minute has more new workloads and pairs than one may have; the others are left out")

// say logs an error, unless it was the last one that was logged.
func (m *minutes) say(failed *string, err error) {
	text := ""
	if err != nil {
		if text = err.Error(); text != *failed {
			m.log.Warn("minutes, or parts of them, are missing from the history", "error", err)
		}
	}
	*failed = text
}

// learnt is the time of the history from which promises learn again. They rest on the
// room of ten days; what they had learnt from the time before is lost.
const learnt = 14 * 24 * time.Hour

// promisesOf returns what the history in a directory says about room. After an error,
// or with damages, that is a part of it.
func promisesOf(dir string, now time.Time) (s promise.State, damages []history.Damage, err error) {
	if dir == "" {
		return s, nil, nil
	}
	cpu, memory := history.Column(history.Node, "room_cpu_mcpu"), history.Column(history.Node, "room_memory_mib")
	damages, err = history.Read(dir, now.Add(-learnt).Unix()/60, now.Unix()/60, func(m *history.Minute) error {
		for _, r := range m.Rows[history.Node] {
			var room promise.Room
			if v := r.Values[cpu]; v != history.Absent {
				room.CPU = node.Some(unit.MilliCPU(v))
			}
			if v := r.Values[memory]; v != history.Absent {
				room.Memory = node.Some(unit.Bytes(v) << 20)
			}
			s.Observe(m.At, room)
		}
		return nil
	})
	return s, damages, err
}
