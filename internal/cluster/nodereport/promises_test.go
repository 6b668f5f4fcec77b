package nodereport

import (
	"encoding/json"
	"testing"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// TestPromisesAreReported also checks that nine promises take less than 3 KB of
// each of some thousand reports.
func TestPromisesAreReported(t *testing.T) {
	v := View{}
	if got := Status(v, nil).Promises; got != nil {
		t.Errorf("without promises: %+v", got)
	}
	for _, hours := range promise.Hours {
		for _, percent := range promise.Levels {
			v.Tick.Promises = append(v.Tick.Promises, promise.Promise{
				Hours: hours, Percent: percent,
				CPU: promise.Amount[unit.MilliCPU]{
					Code: promise.Known, Value: 123_450, Windows: 200, Needed: 48, Judged: 1000, Kept: 900,
					SkillPercent: node.Some(unit.Percent(40)), Better: true,
				},
				Memory: promise.Amount[unit.Bytes]{Code: promise.Known, Value: 123_456 << 20, Judged: 1000, Kept: 900},
			})
		}
	}
	v.Tick.Promises[8].Memory = promise.Amount[unit.Bytes]{Code: promise.TooFew, Windows: 3, Needed: 120}
	v.Tick.Promises[7].Memory = promise.Amount[unit.Bytes]{Code: promise.Unmeasured, Windows: 3, Needed: 120}
	got := Status(v, nil).Promises
	if len(got.CPU) != 9 || len(got.Memory) != 9 {
		t.Fatalf("%+v", got)
	}
	if p := got.CPU[0]; p.Hours != 1 || p.Percent != 80 || p.Amount.String() != "123450m" || p.Kept != 900 || !p.Better || *p.Skill != 40 || p.Lacking != 0 {
		t.Errorf("%+v", p)
	}
	if m := got.Memory[8]; m.Hours != 24 || m.Amount != nil || m.Lacking != 117 {
		t.Errorf("%+v", m)
	}
	if m := got.Memory[7]; m.Amount != nil || m.Lacking != 0 {
		t.Errorf("%+v", m)
	}
	text, err := json.Marshal(got)
	if err != nil || len(text) > 3000 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
