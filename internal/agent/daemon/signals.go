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

// maxWaitingEvents is the number of events that may wait for the loop. The
// sender of a further event blocks, but not longer than one tick.
const maxWaitingEvents = 16

// signals turns notifications of the kernel into events for the loop. It logs once which
// notifications the kernel does not support; without them, ticks come later.
type signals struct {
	host *host.Host
	log  *slog.Logger
	wake chan tick.Event
	done <-chan struct{} // closed when the loop receives no more events

	on       config.Signals
	delays   bool   // run-queue delays are counted
	trouble  string // the last fault in counting delays that was logged
	pressure *pressure
	passing  sync.WaitGroup
}

func openSignals(ctx context.Context, h *host.Host, tree *cgroup.Tree, fs proc.FS, log *slog.Logger) *signals {
	s := &signals{host: h, log: log, wake: make(chan tick.Event, maxWaitingEvents), done: ctx.Done()}
	s.pressure = newPressure(tree, fs.Proc, log, s.send)
	return s
}

// send wakes the loop. It blocks while too many events wait.
func (s *signals) send(e tick.Event) {
	select {
	case <-s.done:
	case s.wake <- e:
	}
}

// nudge wakes the loop. If too many events wait, it drops its event. So it
// never blocks, and the loop itself may call it.
func (s *signals) nudge(e tick.Event) {
	select {
	case s.wake <- e:
	default:
	}
}

// use turns each kind of notification on or off. It is called for each new
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
				s.send(tick.Event{At: a.At, Kind: tick.EventDelay, Workload: a.Workload, Text: a.Text, Wait: a.Wait})
			}
		})
	}
}

// follow sets triggers for the workloads that exist now.
func (s *signals) follow(workloads []node.Workload) {
	// If BPF measures each wait, a trigger on the sum of the waits adds no information.
	s.pressure.follow(workloads, s.on.Pressure, !s.delays)
}

// check runs after each snapshot. It checks that BPF still counts waits. It
// returns true if follow must be called again, because the counting has ended
// or a trigger was lost.
func (s *signals) check(now time.Time) (again bool) {
	again = s.pressure.retry(now)
	if !s.delays {
		return again
	}
	s.say(s.host.Delays().Trouble())
	s.delays = s.host.Delays().Counts()
	return again || !s.delays
}

// say logs a new fault in the counting of waits, and the end of a fault.
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

// close ends all notifications. Before that, the loop must stop receiving events.
func (s *signals) close() error {
	s.pressure.close()
	err := s.host.Delays().Stop()
	s.passing.Wait()
	return err
}

// listen turns changes of cgroups, configuration and isolation into events
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
			case <-time.After(settleTime):
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

// followOverwritten starts a tick when another component has written a knob that it has
// written before. It logs once that the kernel does not tell of such writes.
func (d *daemon) followOverwritten(ctx context.Context) {
	var once sync.Once
	fail := func(err error) {
		once.Do(func() { d.Log.Warn("what other components write is found in the next tick", "error", err) })
	}
	if err := d.host.FollowOverwritten(ctx, func(k node.Knob) {
		d.signals.nudge(tick.Event{At: time.Now(), Kind: tick.EventOverwrite, Text: "another component wrote " + k.String()})
	}, fail); err != nil {
		fail(err)
	}
}
