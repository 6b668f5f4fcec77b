package lease

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/model/node"
)

// world is a node with knobs of best-effort work, a lease and its watchdog. Its
// clock is the clock of a synctest bubble.
type world struct {
	t     *testing.T
	dir   string
	epoch time.Time
	ended chan error // the result of Watch

	removed chan struct{} // Options.Removed

	mu     sync.Mutex
	jump   time.Duration // the clock is ahead of the bubble by this time
	knobs  map[node.Knob]node.Value
	inode  uint64
	refuse map[node.Knob]error
	onStep func()
	writes []string // "1.5s be cpu.max … for PID"
	reads  int
	log    bytes.Buffer
}

var free = node.CPUMax{Quota: node.NoQuota, Period: node.DefaultPeriod}

// runInWorld runs a test in a world. In this world two knobs exceed their
// bounds, quota and second.
func runInWorld(t *testing.T, story func(*testing.T, *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, dir: t.TempDir(), epoch: time.Now().Add(-time.Hour), inode: 5, refuse: map[node.Knob]error{},
			knobs: map[node.Knob]node.Value{quota.Knob: free, second.Knob: free}}
		story(t, w)
	})
}

var second = Bound{Knob: knob("be2", node.FileCPUMax), Inode: 5, Value: node.Limit(200)}

func (w *world) clock() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.epoch) + w.jump
}

// watch starts a watchdog that runs until the end of the test.
func (w *world) watch() { w.watchAs(false) }

// watchAs starts a watchdog with the given value of Last. It returns a function
// that ends the context of the watchdog.
func (w *world) watchAs(last bool) context.CancelFunc {
	w.t.Helper()
	ctx, stop := context.WithCancel(w.t.Context())
	w.ended = make(chan error, 1)
	done := make(chan struct{})
	begun := time.Now()
	o := Options{Dir: w.dir, Boot: boot, Kernel: kernel(2), clock: w.clock, Read: w.read, Last: last, Removed: w.removed,
		Log: slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))}
	o.Apply = func(_ context.Context, h Holder, s plan.Step) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.onStep != nil {
			w.onStep()
		}
		if err := w.refuse[s.Knob]; err != nil {
			return fmt.Errorf("apply %v: %w", s, err)
		}
		w.knobs[s.Knob] = s.To
		w.writes = append(w.writes, fmt.Sprintf("%v %v for %d", time.Since(begun), s.Knob, h.PID))
		return nil
	}
	go func() {
		defer close(done)
		w.ended <- Watch(ctx, o)
	}()
	w.t.Cleanup(func() {
		stop()
		<-done
	})
	return stop
}

func (w *world) read(k node.Knob) (node.Value, uint64, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.reads++
	if w.inode == 0 {
		return nil, 0, ErrGone
	}
	return w.knobs[k], w.inode, nil
}

// Write collects the lines of the log.
func (w *world) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(b)
}

// readLog returns the log.
func (w *world) readLog() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

// wantLines checks that the log has as many lines as words, and that each line
// contains its word.
func (w *world) wantLines(words ...string) {
	w.t.Helper()
	text := w.readLog()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	ok := len(lines) == len(words)
	for i := 0; ok && i < len(words); i++ {
		ok = strings.Contains(lines[i], words[i])
	}
	if !ok {
		w.t.Errorf("got the log\n%swant one line each with %q", text, words)
	}
}

// takeWrites returns the writes since its last call.
func (w *world) takeWrites() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	got := w.writes
	w.writes = nil
	return got
}

// value returns the present value of a knob.
func (w *world) value(k node.Knob) node.Value {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.knobs[k]
}

// readings returns how many knobs were read.
func (w *world) readings() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.reads
}

func (w *world) set(k node.Knob, v node.Value) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.knobs[k] = v
}

// renew renews the lease for the time d, as an agent does.
func (w *world) renew(l *Lease, d time.Duration, bounds ...Bound) {
	w.t.Helper()
	for end := w.clock() + d; w.clock() < end; time.Sleep(Renewal) {
		do(w.t, l.Renew(bounds))
	}
}

func (w *world) want(writes ...string) {
	w.t.Helper()
	if got := w.takeWrites(); !slices.Equal(got, writes) {
		w.t.Errorf("got the writes %q, want %q\n%s", got, writes, w.readLog())
	}
}

func TestBEIsNarrowedWithinTwoSecondsOfTheLastRenewal(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota, second}))
		w.watch()
		w.renew(l, 3*time.Second, quota, second)
		// The last renewal was half a second ago, so the watchdog must not have
		// written anything.
		w.want()
		if n := w.readings(); n != 0 {
			t.Errorf("%d reads while the lease held", n)
		}
		time.Sleep(1500*time.Millisecond + time.Nanosecond)
		w.want("4s be cpu.max for 7", "4s be2 cpu.max for 7")
		if got := w.value(quota.Knob); got != quota.Value {
			t.Errorf("got %v", got)
		}
		time.Sleep(time.Minute)
		w.want()
		w.wantLines("guarding", "expired", "narrowed")
	})
}

// TestALeaseWithoutBoundsLeavesEverything has a lease without bounds. The
// watchdog must not write, and must not log that work gets its safe bounds.
func TestALeaseWithoutBoundsLeavesEverything(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew(nil))
		w.watch()
		time.Sleep(time.Minute)
		w.want()
		w.wantLines("guarding", "there are no safe bounds: best-effort work stays as it is")
	})
}

func TestTheWatchdogStepsBackWhenTheHolderReturns(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota}))
		w.watch()
		time.Sleep(10 * time.Second) // SIGSTOP
		w.want("1.5s be cpu.max for 7")
		if !l.HasExpired() {
			t.Error("the holder does not know that its lease had expired")
		}
		do(t, l.Renew([]Bound{quota})) // SIGCONT
		w.set(quota.Knob, free)
		w.renew(l, 10*time.Second, quota)
		w.want()
		w.wantLines("guarding", "expired", "narrowed", "renewed")
		if got := w.value(quota.Knob); got != node.Value(free) {
			t.Errorf("got %v", got)
		}
	})
}

func TestAnAnnouncedStopLeavesTimeForASuccessor(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota}))
		w.watch()
		w.renew(l, 2*time.Second, quota)
		do(t, l.Announce(time.Minute), l.Close())
		time.Sleep(58900 * time.Millisecond) // not when the watchdog looks
		w.want()
		next := take(t, w.dir, successor, w.clock)
		w.renew(next, time.Minute, quota)
		w.want()
		w.wantLines("guarding", "announced", "guarding")
		// The next holder was killed after one renewal, so it gets only TTL.
		time.Sleep(TTL)
		w.want("2m1.9s be cpu.max for 8")
	})
}

// TestTheLastWatchdogBoundsAllBestEffortWork checks a watchdog that ends
// together with the pod of its agent. Best-effort work must be within its
// bounds before the watchdog ends.
func TestTheLastWatchdogBoundsAllBestEffortWork(t *testing.T) {
	for _, x := range []struct {
		name string
		last bool
		end  func(*world, *Lease) // the end of the agent
		want []string
	}{
		{"the agent has announced its stop", true, func(_ *world, l *Lease) { do(t, l.Announce(time.Minute), l.Close()) }, []string{"2s be cpu.max for 7"}},
		{"the agent was killed", true, func(_ *world, l *Lease) { do(t, l.Close()) }, []string{"3s be cpu.max for 7"}},
		{"the agent goes on", true, func(w *world, l *Lease) { go w.renew(l, 10*time.Second, quota) }, nil},
		{"the agent has put everything back", true, func(w *world, l *Lease) { do(t, l.Close(), Disarm(w.t.Context(), w.dir)) }, nil},
		{"another one guards", false, func(_ *world, l *Lease) { do(t, l.Announce(time.Minute), l.Close()) }, nil},
	} {
		t.Run(x.name, func(t *testing.T) {
			runInWorld(t, func(t *testing.T, w *world) {
				l := take(t, w.dir, agent, w.clock)
				do(t, l.Renew([]Bound{quota}))
				stop := w.watchAs(x.last)
				w.renew(l, 2*time.Second, quota)
				x.end(w, l)
				stop()
				if err := <-w.ended; err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				if got := w.takeWrites(); !slices.Equal(got, x.want) {
					t.Errorf("got the writes %q, want %q\n%s", got, x.want, w.readLog())
				}
				time.Sleep(20 * time.Second)
			})
		})
	}
}

func TestAnAnnouncedStopWithoutASuccessorEndsInTheBounds(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota}), l.Announce(time.Minute), l.Close())
		w.watch()
		time.Sleep(2 * time.Minute)
		w.want("1m0s be cpu.max for 7")
	})
}

func TestASuccessorThatCrashesAgainAndAgainProlongsNothing(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota}), l.Close())
		w.watch()
		for range 10 {
			time.Sleep(300 * time.Millisecond)
			do(t, take(t, w.dir, successor, w.clock).Close())
		}
		w.want("1.5s be cpu.max for 8")
	})
}

func TestWhatSomebodyWidensIsNarrowedAgain(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota, second}))
		w.watch()
		time.Sleep(2 * time.Second)
		w.want("1.5s be cpu.max for 7", "1.5s be2 cpu.max for 7")
		w.set(quota.Knob, node.Limit(900))
		w.set(second.Knob, node.Limit(100)) // narrower than the bound
		time.Sleep(1200 * time.Millisecond)
		w.want("2.5s be cpu.max for 7")
		if got := w.value(second.Knob); got != node.Value(node.Limit(100)) {
			t.Errorf("the watchdog widened to %v", got)
		}
	})
}

func TestARefusedWriteIsTriedAgainAndTheOthersGoOn(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota, second}))
		w.refuse[quota.Knob] = errors.New("invalid argument")
		w.watch()
		time.Sleep(1600 * time.Millisecond)
		w.want("1.5s be2 cpu.max for 7")
		w.mu.Lock()
		delete(w.refuse, quota.Knob)
		w.mu.Unlock()
		time.Sleep(200 * time.Millisecond)
		w.want("1.7s be cpu.max for 7")
	})
}

func TestALastingFailureIsLoggedOnceAndTriedLessOften(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota}))
		w.refuse[quota.Knob] = errors.New("invalid argument")
		w.watch()
		time.Sleep(time.Hour)
		w.wantLines("guarding", "expired", "could not be narrowed")
		if n := w.readings(); n > 3700 {
			t.Errorf("%d reads", n)
		}
	})
}

func TestAGroupThatIsGoneOrMadeAgainIsLeftAlone(t *testing.T) {
	for name, inode := range map[string]uint64{"gone": 0, "made again": 99} {
		t.Run(name, func(t *testing.T) {
			runInWorld(t, func(t *testing.T, w *world) {
				l := take(t, w.dir, agent, w.clock)
				do(t, l.Renew([]Bound{quota}))
				w.inode = inode
				w.watch()
				time.Sleep(time.Minute)
				w.want()
				w.wantLines("guarding", "expired")
			})
		})
	}
}

func TestTheWatchdogEndsWithTheLease(t *testing.T) {
	for name, end := range map[string]func(w *world, l *Lease) error{
		"dropped":  func(_ *world, l *Lease) error { return l.Drop() },
		"disarmed": func(w *world, _ *Lease) error { return Disarm(w.t.Context(), w.dir) },
		"of another boot": func(w *world, _ *Lease) error {
			return os.WriteFile(filepath.Join(w.dir, leaseFile), head{boot: "another", deadline: 1}.append(nil), 0o644)
		},
		"vanished": func(w *world, _ *Lease) error { return os.Remove(filepath.Join(w.dir, leaseFile)) },
	} {
		t.Run(name, func(t *testing.T) {
			runInWorld(t, func(t *testing.T, w *world) {
				l := take(t, w.dir, agent, w.clock)
				do(t, l.Renew([]Bound{quota}))
				w.watch()
				w.renew(l, time.Second, quota)
				if _, guarded := IsGuarded(w.dir); !guarded {
					t.Error("not guarded")
				}
				do(t, end(w, l))
				time.Sleep(lookEvery)
				synctest.Wait()
				if _, guarded := IsGuarded(w.dir); guarded {
					t.Error("still guarded")
				}
				select {
				case err := <-w.ended:
					if err != nil {
						t.Error(err)
					}
				default:
					t.Error("the watchdog goes on")
				}
				w.want()
			})
		})
	}
}

// TestNothingIsWrittenAfterDisarm removes the lease while the watchdog narrows
// knobs, as a restore does. The watchdog must not write any further knob.
func TestNothingIsWrittenAfterDisarm(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota, second}))
		w.onStep = func() { _ = os.Remove(filepath.Join(w.dir, leaseFile)) }
		w.watch()
		time.Sleep(3 * time.Second)
		w.want("1.5s be cpu.max for 7")
	})
}

func TestAnUnreadableLeaseDoesNotStopTheClock(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota}))
		w.watch()
		time.Sleep(time.Second)
		do(t, os.WriteFile(filepath.Join(w.dir, leaseFile), []byte("garbage"), 0o644))
		time.Sleep(time.Minute)
		w.want("1.5s be cpu.max for 7")
		w.wantLines("guarding", "unreadable", "expired", "narrowed")
	})
}

func TestALeaseThatWasNeverReadableBindsNobody(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		do(t, os.WriteFile(filepath.Join(w.dir, leaseFile), []byte("garbage"), 0o644))
		w.watch()
		time.Sleep(time.Minute)
		w.want()
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota}))
		time.Sleep(2 * time.Second)
		w.want("1m1.5s be cpu.max for 7")
	})
}

func TestADeadlineThatNobodyCanHaveSetIsNotBelieved(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota}))
		w.jump = -time.Hour // the clock of the holder is far ahead
		w.watch()
		time.Sleep(time.Second)
		w.want("0s be cpu.max for 7")
	})
}

// TestAPausedMachineGivesTheHolderOneRenewal pauses the whole machine. Then the
// lease has expired, although the holder did not fail. The holder must get the
// time for one renewal.
func TestAPausedMachineGivesTheHolderOneRenewal(t *testing.T) {
	pause := func(w *world) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.jump += time.Minute
	}
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew([]Bound{quota}))
		w.watch()
		w.renew(l, 2*time.Second, quota)
		time.Sleep(100 * time.Millisecond)
		pause(w)
		time.Sleep(1100 * time.Millisecond) // the watchdog wakes up before the holder
		w.renew(l, 10*time.Second, quota)
		w.want()
		// If the holder does not renew in this time, it gets no more time.
		pause(w)
		time.Sleep(400 * time.Millisecond)
		pause(w)
		time.Sleep(time.Second)
		if got := w.takeWrites(); len(got) != 1 {
			t.Errorf("got the writes %q", got)
		}
	})
}

func TestThereIsOneWatchdog(t *testing.T) {
	runInWorld(t, func(t *testing.T, w *world) {
		l := take(t, w.dir, agent, w.clock)
		do(t, l.Renew(nil))
		w.watch()
		synctest.Wait()
		err := Watch(t.Context(), Options{Dir: w.dir, Boot: boot, clock: w.clock})
		if !errors.Is(err, ErrHeld) {
			t.Errorf("got %v", err)
		}
		if pid, guarded := IsGuarded(w.dir); !guarded || pid != os.Getpid() {
			t.Errorf("guarded by %d, %v", pid, guarded)
		}
	})
}

func TestWatchEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		do(t, take(t, dir, agent, monotonic).Renew(nil))
		ctx, stop := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, stop)
		if err := Watch(ctx, Options{Dir: dir, Boot: boot}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	})
}
