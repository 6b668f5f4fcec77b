package control

import (
	"fmt"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/decide/reclaim"
)

// outcomeTexts says what a step of the reclaim did.
var outcomeTexts = map[reclaim.Outcome]string{
	reclaim.Unnoticed: "it did not notice",
	reclaim.Stalled:   "it waited too long for memory",
	reclaim.Refaulted: "it read too much back",
	reclaim.Little:    "the kernel found little to reclaim",
	reclaim.Failed:    "the kernel refused",
}

// holdTexts says why nothing is asked for now.
var holdTexts = map[reclaim.Hold]string{
	reclaim.Enough:    "the node has enough free memory",
	reclaim.NoService: "no service runs on the node",
	reclaim.NotHere:   "the kernel has no memory.reclaim",
	reclaim.Stale:     "its pressure and its refaults were not read just now",
	reclaim.Unknown:   "its memory, pressure, refaults or protection is not known, or whether it is frozen",
	reclaim.Pending:   "the last step is not judged yet",
	reclaim.Resting:   "it rests after a step that took too much",
	reclaim.Protected: "it has little more than its memory.min or memory.low",
	reclaim.Mixed:     "its cgroup holds other workloads",
	reclaim.Ending:    "it is being evicted, or is frozen",
	reclaim.Rate:      "other work was asked for what a second allows",
}

// describe writes what the kernel has reclaimed, the last step, and the next.
func (r *Reclaim) describe(b *strings.Builder) {
	fmt.Fprintf(b, "  reclaim    asked for %s, got %s", Size(r.Done.Asked), Size(r.Done.Got))
	if j := r.Work.Last; j.Outcome != "" {
		fmt.Fprintf(b, "; last %s of %s: %s (waited %v of %v, read back %s)", Size(j.Got), Size(j.Asked), outcomeTexts[j.Outcome],
			j.Stalled.Round(time.Millisecond), j.Over.Round(time.Second/10), Size(j.Refaulted))
	}
	if r.Done.Errno > 0 {
		fmt.Fprintf(b, ": %v", syscall.Errno(r.Done.Errno))
	}
	fmt.Fprintf(b, "\n             next %s", Size(r.Work.Step))
	if r.Lacks > 0 {
		fmt.Fprintf(b, "; the node lacks %s of free memory", Size(r.Lacks))
	}
	if why := holdTexts[r.Work.Hold]; why != "" {
		fmt.Fprintf(b, "; now none: %s", why)
	}
	b.WriteByte('\n')
}
