package record

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/decide/tick"
)

func TestTicksAreHandedOnAsTheyWere(t *testing.T) {
	dir := t.TempDir()
	r, err := Open(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := newLife(4)
	var want []tick.Tick
	for range 50 {
		turn := l.tick(time.Second)
		if err := r.Record(turn); err != nil {
			t.Fatal(err)
		}
		want = append(want, turn.Tick)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	err = Ticks(bytes.NewReader(captured(t, dir)), func(got Tick) {
		w := want[n]
		n++
		if !got.Begun.Equal(w.Begun) || got.Sense != w.Sense || got.Act != w.Act || len(got.Done) != len(w.Done) {
			t.Errorf("turn %d: begun %v, %d steps; want %v, %d", n, got.Begun, len(got.Done), w.Begun, len(w.Done))
		}
		if diff := cmp.Diff(w.Events, got.Events); diff != "" {
			t.Errorf("turn %d: events (-want +got):\n%s", n, diff)
		}
	})
	if err != nil || n != len(want) {
		t.Errorf("%d of %d turns, %v", n, len(want), err)
	}
	if err := Ticks(bytes.NewReader([]byte("{\"tick\":\n")), func(Tick) {}); err == nil {
		t.Error("a damaged record is taken")
	}
}
