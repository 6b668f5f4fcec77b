package lab

import (
	"time"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/unit"
)

// holdings is the memory that the two sides hold at one moment.
type holdings struct {
	lsFile, beFile, beAnon unit.Bytes
}

// readMemory adds the counters of memory to a reading.
func (s *sampler) readMemory(r *reading) error {
	ls, err := s.tree.MemoryStat(string(s.service))
	if err != nil {
		return err
	}
	r.hold.lsFile = ls.File
	r.count[lsRefaults], r.count[lsMajorFaults] = float64(ls.Refaults), float64(ls.MajorFaults)
	if s.batch == "" {
		return nil
	}
	be, err := s.tree.MemoryStat(string(s.batch))
	if err != nil {
		return err
	}
	r.hold.beFile, r.hold.beAnon = be.File, be.Anon
	r.count[beRefaults] = float64(be.Refaults)
	return nil
}

// fillMemory copies what was counted of memory into r.
func fillMemory(r *report.Run, m measurement) {
	u := m.used
	r.Memory.LSRefaults, r.Memory.LSMajorFaults = int64(u.count[lsRefaults]), int64(u.count[lsMajorFaults])
	r.Memory.BERefaults = int64(u.count[beRefaults])
	var ls, be float64
	n := 0
	for _, reading := range m.course {
		if reading.at.Before(m.from) || reading.at.After(m.to) {
			continue
		}
		n++
		ls += float64(reading.hold.lsFile)
		be += float64(reading.hold.beFile + reading.hold.beAnon)
		r.Memory.Course = append(r.Memory.Course, report.Held{
			At: reading.at.Sub(m.from).Round(time.Millisecond), LS: reading.hold.lsFile, BEFile: reading.hold.beFile, BEAnon: reading.hold.beAnon,
		})
	}
	if n > 0 {
		r.Memory.LSHeld, r.Memory.BEHeld = unit.Bytes(ls/float64(n)), unit.Bytes(be/float64(n))
	}
}

// judge adds what voids the run, beside what the client found.
func (b *memoryBench) judge(r *report.Run, m measurement) {
	disturbed(r, m, b.StealPercent)
	if r.Mode == report.Tenond && len(r.Writes) == 0 {
		r.Void = append(r.Void, "Tenon changed nothing: this is not the mode that it should be")
	}
	if r.Length < b.Duration/2 {
		r.Void = append(r.Void, tooShort(*r))
	}
}
