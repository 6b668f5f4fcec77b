package run

import (
	"time"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/memory"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

// fillMemory copies the counters of memory into r.
func fillMemory(r *memory.Run, m harness.Measurement) {
	u := m.Used
	r.Memory.LSRefaults, r.Memory.LSMajorFaults = int64(u.Count[harness.LSRefaults]), int64(u.Count[harness.LSMajorFaults])
	r.Memory.BERefaults = int64(u.Count[harness.BERefaults])
	var ls, be float64
	n := 0
	for _, reading := range m.Readings {
		if reading.At.Before(m.From) || reading.At.After(m.To) {
			continue
		}
		n++
		ls += float64(reading.Hold.LSFile)
		be += float64(reading.Hold.BEFile + reading.Hold.BEAnon)
		r.Memory.Readings = append(r.Memory.Readings, memory.Held{
			At: reading.At.Sub(m.From).Round(time.Millisecond), LS: reading.Hold.LSFile, BEFile: reading.Hold.BEFile, BEAnon: reading.Hold.BEAnon,
		})
	}
	if n > 0 {
		r.Memory.LSHeld, r.Memory.BEHeld = unit.Bytes(ls/float64(n)), unit.Bytes(be/float64(n))
	}
}

// judge adds to a run the reasons why it is void. The client's reasons are in
// it already, from harness.Fill.
func (b *environment) judge(r *memory.Run, m harness.Measurement) {
	if r.Mode == report.Tenond && len(r.Writes) == 0 {
		r.Discard(report.NotItsMode, "Tenon changed nothing, so the run does not measure its mode")
	}
	m.Judge(&r.Run, b.StealPercent, b.Duration)
}
