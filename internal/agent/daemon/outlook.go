package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"tenon.sh/tenon/internal/agent/history"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	// seenDays is the time of the history of which an outlook is made, in minutes.
	seenDays = 7 * 24 * 60
	// leastLag and mostLag bound the number of minutes after a full hour at which its
	// outlook is made. The last minute has to be on the disk, and the nodes of a cluster
	// must not all read in the same minute.
	leastLag, mostLag = 2, 12
	// The history is read in pieces, with a pause after each: a piece of some
	// milliseconds hardly delays a service, and a thread of low priority could hold locks
	// of this process while it waits for a CPU.
	pieceMinutes = 60
	piecePause   = 20 * time.Millisecond
)

// outlooks makes the outlook of the node from its history: one for each full hour, so
// that a restart in between gives the same one. Another goroutine reads, because the
// history of a week takes longer than a tick.
type outlooks struct {
	log   *slog.Logger
	lag   int64 // in minutes
	asked int64 // the hour of the last question, since 1970
	queue chan question
	made  atomic.Pointer[prospect.Outlook]
	// pause replaces piecePause in tests.
	pause time.Duration
}

// A question is what an outlook is made of.
type question struct {
	dir        string
	first, end int64 // minutes since 1970
	of         prospect.Node
}

func openOutlooks(log *slog.Logger) *outlooks {
	return &outlooks{log: log, lag: leastLag + rand.Int64N(mostLag-leastLag), queue: make(chan question, 1), pause: piecePause}
}

// tick returns the outlook of the last full hour, or an older one until that is made.
// Without a history there is none.
func (o *outlooks) tick(t tick.Tick, h config.History) *prospect.Outlook {
	if h.Directory == "" {
		o.asked = 0
		o.made.Store(nil)
		return nil
	}
	s := &t.Snapshot
	memory, sized := s.MemoryTotal.Value()
	hour := (t.Begun.Unix()/60 - o.lag) / 60
	if s.At.IsZero() || !sized || hour == o.asked {
		return o.made.Load()
	}
	of := prospect.Node{Promises: t.Promises, CPU: unit.MilliCPU(len(s.Topology.CPUs)) * 1000, Memory: memory, Spare: memory * unit.Bytes(prospect.SparePercent) / 100}
	select {
	case o.queue <- question{dir: h.Directory, first: hour*60 - seenDays, end: hour * 60, of: of}:
		o.asked = hour
	default: // the last one is still being made
	}
	return o.made.Load()
}

// run answers questions until ctx ends.
func (o *outlooks) run(ctx context.Context) {
	failed := ""
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-o.queue:
			found, damages, err := history.ReadNodeBy(q.dir, q.first, q.end, q.of, nil, o.breathe(ctx))
			for _, d := range damages {
				o.log.Debug("a part of the history is damaged; the outlook does without it", "file", d.File, "bytes", d.Bytes)
			}
			text := ""
			switch {
			case ctx.Err() != nil:
				return
			case errors.Is(err, fs.ErrNotExist):
				o.made.Store(nil) // nothing was written yet
			case err != nil:
				// A part of the history would look like a node that has less room.
				o.made.Store(nil)
				if text = err.Error(); text != failed {
					o.log.Warn("there is no outlook of this node: the history cannot be read", "error", err)
				}
			default:
				if made := prospect.Summarize(found); made.Seen > 0 {
					o.made.Store(&made)
				} else {
					o.made.Store(nil) // the directory has no file yet, or no minute of these days
				}
			}
			failed = text
		}
	}
}

// breathe returns a function that pauses after each piece of the history, and ends the
// reading when ctx ends.
func (o *outlooks) breathe(ctx context.Context) func() error {
	minutes := 0
	return func() error {
		if minutes++; minutes%pieceMinutes != 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(o.pause):
			return nil
		}
	}
}
