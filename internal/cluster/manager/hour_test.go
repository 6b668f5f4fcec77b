package manager

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// hour counts what happens to a node in an hour.
type hour struct{ reports, writes, early, raises, held int }

func runAnHour(t *testing.T, seed uint64) (h hour) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(51, seed))
	c := colocationDefaults()
	c.Window, c.Look = 5*time.Minute, time.Minute
	s := newSimulated(16, 64*gib, c)
	s.system, s.held = 300, gib
	s.work = []job{{class: node.LS, asked: 4000, used: 500, wants: 4 * gib, has: 2 * gib}, {class: node.LS, asked: 2000, used: 200, wants: gib, has: gib}, {class: node.BE}}
	n := s.node(0, 0)
	var m Memory
	var given Sighting
	var lastWrite time.Time
	var ups [kinds][]time.Time // times of large rises
	reported, requested := [kinds]int64{}, [kinds]int64{}
	writes := "second services_milli reported_milli requested_milli batch_cpu_milli state\n"
	for second := range 3600 {
		if rnd.IntN(40) == 0 { // the load changes in a step
			s.work[rnd.IntN(2)].used = unit.MilliCPU(rnd.IntN(4000))
		}
		if rnd.IntN(60) == 0 { // batch pods start and end, within the available amount
			is := factsOf(n).Present
			s.work[2].asked, s.work[2].wants = unit.MilliCPU(rnd.Int64N(1+is[cpu].Or(0))), unit.Bytes(rnd.Int64N(1+is[memory].Or(0)))
		}
		for i := range s.work { // the load has noise
			s.work[i].has = gib + unit.Bytes(rnd.IntN(1<<30))
		}
		saved := s.work[0].used
		s.work[0].used += unit.MilliCPU(rnd.IntN(400))
		s.pass(time.Second)
		s.work[0].used = saved
		status := s.report()
		if at := s.snap.At; s.pace.Due(at, status) {
			s.pace.Sent(at, status)
			given = Sighting{Batch: status.Batch.DeepCopy(), Seen: at, Fresh: true}
			h.reports++
			if all, err := claims(*given.Batch); err != nil {
				t.Fatalf("second %d: the manager refuses the report of the agent: %v", second, err)
			} else {
				reported = [kinds]int64{all[cpu].amount, all[memory].amount}
				requested = [kinds]int64{all[cpu].requested, all[memory].requested}
			}
		}
		now := Case{At: s.snap.At, Rules: c, Node: factsOf(n), Report: given, Memory: m}
		v := Decide(now)
		m = v.Memory
		before := factsOf(n).Present
		if v.State == Held {
			h.held++
		}
		if v.Write {
			fall, rise := false, false
			for k := range kinds {
				was, is := before[k].Or(0), v.Want[k].Or(0)
				fall = fall || is < was-was/10 || is == 0 && was > 0
				rise = rise || is > was
				if is > was+was/10 {
					ups[k] = append(ups[k], s.snap.At)
				}
			}
			if !lastWrite.IsZero() && s.snap.At.Sub(lastWrite) < Pause {
				h.early++
				if !fall && s.snap.At.Sub(m.Fell) > fallTime || rise {
					t.Errorf("second %d: written %v after the last: %s -> %s", second, s.snap.At.Sub(lastWrite), amounts(before), amounts(v.Want))
				}
			}
			if rise {
				h.raises++
			}
			h.writes++
			writes += fmt.Sprintln(second, s.work[0].used+s.work[1].used, reported[cpu], requested[cpu], v.Want[cpu].Or(0), v.State)
			lastWrite = s.snap.At
			m.wrote(now, v)
			giveBatch(n, v.Want[cpu].Or(0), v.Want[memory].Or(0))
		}
		for k := range kinds {
			is, floor := factsOf(n).Present[k].Or(0), min(requested[k], before[k].Or(0))
			if is > max(floor+floor/9, reported[k]+reported[k]/9)+1 {
				t.Errorf("second %d: %v is %s, %s are reported, and running pods request %s", second, k, k.printAmount(is), k.printAmount(reported[k]), k.printAmount(requested[k]))
			}
			if is < floor {
				t.Errorf("second %d: %v is %s, running pods have %s", second, k, k.printAmount(is), k.printAmount(floor))
			}
		}
	}
	if dir := os.Getenv("TENON_TEST_RAW"); dir != "" {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("hour-%d.txt", seed)), []byte(writes), 0o644); err != nil {
			t.Error(err)
		}
	}
	for k, at := range ups {
		for i := 1; i < len(at); i++ {
			if d := at[i].Sub(at[i-1]); d < time.Minute-2*Pause { // the report and the write may each be Pause late
				t.Errorf("large rises of %v only %v apart", kind(k), d)
			}
		}
	}
	return h
}
