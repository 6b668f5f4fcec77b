package concurrency

import (
	"fmt"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// A MemoryEffect compares the times of jobs in two cases: jobs that had the
// most memory, and jobs that had the least. All other conditions are the same.
type MemoryEffect struct {
	Least      unit.Bytes `json:"least_bytes"`
	Most       unit.Bytes `json:"most_bytes"`
	Conditions int        `json:"conditions"`
	// Ratio is the time with the most memory divided by the time with the least,
	// as a mean over blocks. Without blocks, each condition counts as a block.
	Ratio   report.Interval `json:"seconds_ratio"`
	Verdict jobs.Verdict    `json:"verdict"`
}

func memoryEffect(all []jobs.Option) *MemoryEffect {
	e, ok := jobs.MemoryEffectOf(all)
	if !ok {
		return nil
	}
	return &MemoryEffect{e.Least, e.Most, e.Conditions, e.Ratio, e.Verdict}
}

// memoryLine returns a sentence about the effect of memory on the time of a job.
func memoryLine(r Result) string {
	m := r.Memory
	if m == nil {
		return ""
	}
	return fmt.Sprintf("Jobs with %s of memory take %s as long as those with %s (%s): %s.", memoryText(m.Most), ratioText(m.Ratio.Value, m.Ratio),
		memoryText(m.Least), textlayout.Plural(m.Conditions, "limit or number of jobs", "limits and numbers of jobs"), m.Verdict)
}
