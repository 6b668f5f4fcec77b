package history

import (
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/node"
)

// rowOf makes a row of some columns; the others are Absent.
func rowOf(k Kind, name string, columns map[string]int64) Row {
	values := slices.Repeat([]int64{Absent}, len(Columns[k]))
	for column, v := range columns {
		values[Column(k, column)] = v
	}
	return Row{name, values}
}

// TestANodeHasTheMinutesOfItsHistory writes minutes with a hole, with a value that was
// not measured, and with workloads of which only some can be hurt or be batch work.
func TestANodeHasTheMinutesOfItsHistory(t *testing.T) {
	class := func(c node.Class) int64 { return int64(slices.Index(node.Classes[:], c)) }
	minute := func(at, room, used, job int64) Minute {
		m := Minute{At: at}
		m.Rows[Node] = []Row{rowOf(Node, "", map[string]int64{"room_cpu_mcpu": room, "cpu_mcpu": used, "working_set_mib": 900})}
		m.Rows[Work] = []Row{
			rowOf(Work, "web", map[string]int64{"class": class(node.LS), "cpu_mcpu": 700, "throttled_ms": 40}),
			rowOf(Work, "ci/job", map[string]int64{"class": class(node.LS), "cpu_mcpu": job}),
			rowOf(Work, "encode", map[string]int64{"class": class(node.BE), "cpu_mcpu": 300, "throttled_ms": 30_000}),
		}
		wait := func(waiter, runner string, ms int64) Row {
			return rowOf(Pair, PairName(waiter, runner), map[string]int64{"wait_ms": ms})
		}
		m.Rows[Pair] = []Row{
			wait("web", "encode", 50), wait("web", string(node.RunnerIdle), 5000), wait("web", "web", 5000),
			wait("web", string(node.RunnerElsewhere), 5000), wait("encode", "web", 5000), wait("web", string(node.RunnerKernel), 10),
		}
		return m
	}
	dir := t.TempDir()
	appendAll(t, open(t, dir, 1<<20), []Minute{
		minute(100, 1000, 800, 5), minute(101, Absent, 810, 6), minute(104, 1200, 820, Absent), minute(105, 1300, Absent, 7),
	})
	of := prospect.Node{Name: "n", Pool: "p", CPU: 4000, Memory: 8 << 30, Spare: 1 << 20}
	isJob := func(w string) bool { return w == "ci/job" }
	got, damages, err := ReadNode(dir, 0, 105, of, isJob)
	if err != nil || len(damages) > 0 {
		t.Fatal(err, damages)
	}
	const no = prospect.Absent
	want := prospect.Node{
		Name: "n", Pool: "p", CPU: 4000, Memory: 8 << 30, Spare: 1 << 20, Start: 100, Step: 1,
		RoomCPU: []int64{1000, no, no, no, 1200}, UsedCPU: []int64{800, 810, no, no, 820},
		UsedMemory: []int64{900, 900, no, no, 900}, BatchCPU: []int64{5, 6, no, no, no},
		Hurt: []prospect.Hurt{
			{Service: "web", By: "encode", Minutes: 3, Lost: 150 * time.Millisecond},
			{Service: "web", Minutes: 3, Lost: 120 * time.Millisecond},
			{Service: "web", By: string(node.RunnerKernel), Minutes: 3, Lost: 30 * time.Millisecond},
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
	if got, _, err := ReadNode(dir, 0, 105, of, nil); err != nil || got.BatchCPU != nil {
		t.Errorf("batch work is known where nothing says which work that is: %v, %v", got.BatchCPU, err)
	}
	if got, _, err := ReadNode(dir, 900, 905, of, isJob); err != nil || got.RoomCPU != nil || got.UsedCPU != nil {
		t.Errorf("a time without history: %+v, %v", got, err)
	}
}

// TestPairsOfShortJobsDoNotFillTheMemory has a new job in each minute, for which the
// service waits a little, and one neighbour for which it waits always.
func TestPairsOfShortJobsDoNotFillTheMemory(t *testing.T) {
	g := gatherer{hurt: map[hurtKey]*prospect.Hurt{}}
	most := 0
	for i := range 10 * mostPairsRead {
		g.blame("web", fmt.Sprintf("job-%d", i), 20)
		g.blame("web", "neighbour", 30)
		most = max(most, len(g.hurt))
	}
	if n := g.done(); most > mostPairsRead || n.Hurt[0].By != "neighbour" || n.Hurt[0].Minutes != 10*mostPairsRead {
		t.Errorf("%d pairs at once; the worst is %+v", most, n.Hurt[0])
	}
}

// BenchmarkReadANode reads what the outlook of a node needs: a week of a hundred
// workloads.
func BenchmarkReadANode(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir, 1<<30)
	random := newBusy(100)
	const start = 29_000_160
	for i := range int64(7 * minutesOfDay) {
		if err := s.Append(random.minute(start + i)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		n, _, err := ReadNode(dir, start, start+7*minutesOfDay, prospect.Node{}, nil)
		if err != nil || len(n.RoomCPU) == 0 {
			b.Fatal(err)
		}
	}
}
