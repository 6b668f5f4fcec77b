package daemon

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/tick"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/model/node"
)

// wakes is the number of events that may wait for the loop. If there are more,
// a sender blocks, for at most one tick.
const wakes = 16

// signals turns notifications of the kernel into events. If the kernel does not support
// a kind of notification, signals logs that once, and the loop runs only at its period.
type signals struct {
	host *host.Host
	log  *slog.Logger
	wake chan tick.Event
	done <-chan struct{} // closed when the loop receives no more events

	on       config.Signals
	delays   bool   // run-queue delays are counted
	trouble  string // the last logged fault of the delays
	pressure *pressure
	passing  sync.WaitGroup
}

func openSignals(ctx context.Context, h *host.Host, tree *cgroup.Tree, fs proc.FS, log *slog.Logger) *signals {
	s := &signals{host: h, log: log, wake: make(chan tick.Event, wakes), done: ctx.Done()}
	s.pressure = newPressure(tree, fs.Proc, log, s.send)
	return s
}

// send wakes the loop.
func (s *signals) send(e tick.Event) {
	select {
	case <-s.done:
	case s.wake <- e:
	}
}

// nudge wakes the loop unless an event is waiting already. It never blocks, so
// the loop itself may call it.
func (s *signals) nudge(e tick.Event) {
	select {
	case s.wake <- e:
	default:
	}
}

// use enables or disables each kind of notifications. It is called for each new
// configuration, and also tries again what failed before.
func (s *signals) use(on config.Signals) {
	s.on = on
	clear(s.pressure.said)
	switch {
	case !on.RunQueueDelay && s.delays:
		if err := s.host.Delays().Stop(); err != nil {
			s.log.Warn("stop counting run-queue delays", "error", err)
		}
		s.delays, s.trouble = false, ""
	case on.RunQueueDelay && !s.delays:
		alarms, err := s.host.Delays().Count()
		if err != nil {
			s.say("run-queue delays are not counted by BPF: " + err.Error())
			return
		}
		s.delays = true
		s.say("")
		s.passing.Go(func() {
			for a := range alarms {
				s.send(tick.Event{At: a.At, Kind: tick.EventDelay, Workload: a.Workload, Text: a.Text})
			}
		})
	}
}

// follow sets triggers on the workloads that exist now.
func (s *signals) follow(workloads []node.Workload) {
	// If BPF measures each wait, a trigger on the sum of the waits adds no information.
	s.pressure.follow(workloads, s.on.Pressure, !s.delays)
}

// check runs after each snapshot. It checks that the kernel still counts waits.
// It reports whether follow should be called because the counting ended or a
// trigger was lost.
func (s *signals) check(now time.Time) (again bool) {
	again = s.pressure.retry(now)
	if !s.delays {
		return again
	}
	s.say(s.host.Delays().Trouble())
	s.delays = s.host.Delays().Counts()
	return again || !s.delays
}

// say logs a fault of the counting of waits, once for each new fault.
func (s *signals) say(trouble string) {
	switch {
	case trouble == s.trouble:
		return
	case trouble == "":
		s.log.Info("run-queue delays are counted in full")
	default:
		s.log.Warn(trouble)
	}
	s.trouble = trouble
}

// close ends the signals. The loop must have stopped receiving events before this call.
func (s *signals) close() error {
	s.pressure.close()
	err := s.host.Delays().Stop()
	s.passing.Wait()
	return err
}

// listen sends events for the changes that are no notifications of the kernel,
// until ctx ends.
func (d *daemon) listen(ctx context.Context) {
	for {
		e := tick.Event{Kind: tick.EventCgroups, Text: "cgroups have come or gone"}
		select {
		case <-ctx.Done():
			return
		case <-d.watcher.Changed():
			e.At = time.Now()
			d.changed.Store(true)
			select {
			case <-ctx.Done():
				return
			case <-time.After(settling):
			}
		case <-d.Reload:
			d.file.Reload()
			continue
		case <-d.file.News():
			e = tick.Event{At: time.Now(), Kind: tick.EventConfig, Text: "the configuration was read again"}
		case r := <-d.host.Isolation().Events():
			e = tick.Event{At: r.At, Kind: tick.EventMechanism, Text: r.Text}
		}
		d.signals.send(e)
	}
}
