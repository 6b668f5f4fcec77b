package nodereport

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
)

const (
	// leastGap is the least time between two reports, whatever happens. A fall
	// of the batch resources is reported after it.
	leastGap = time.Second
	// changeGap is the least time before any other change is reported.
	changeGap = 10 * time.Second
	// heartbeat is the time after which a report is sent in any case, because
	// it shows that the agent is alive.
	heartbeat = time.Minute
	// fallPercent is the least fall of an amount that is reported at once. A
	// fall by less waits for changeGap: noise is not worth a patch a second.
	fallPercent = 2
)

// A Pace decides when a report is worth sending. The zero Pace has sent none.
type Pace struct {
	sent time.Time
	last v1alpha1.NodeReportStatus
}

// Rests reports whether it is too soon for any report.
func (p *Pace) Rests(at time.Time) bool {
	passed := at.Sub(p.sent)
	return !p.sent.IsZero() && passed >= 0 && passed < leastGap
}

// Due reports whether a report is to be sent at a time.
func (p *Pace) Due(at time.Time, next v1alpha1.NodeReportStatus) bool {
	passed := at.Sub(p.sent)
	switch {
	case p.sent.IsZero() || passed < 0: // the first; or the clock was set
		return true
	case p.Rests(at):
		return false
	case passed >= heartbeat || failures(p.last.Batch.CPU, next.Batch.CPU) || failures(p.last.Batch.Memory, next.Batch.Memory),
		frees(p.last.Batch.CPU, next.Batch.CPU), frees(p.last.Batch.Memory, next.Batch.Memory):
		return true
	}
	return passed >= changeGap && differ(p.last, next)
}

// Sent notes that a report was handed on to be sent.
func (p *Pace) Sent(at time.Time, status v1alpha1.NodeReportStatus) { p.sent, p.last = at, status }

// Conditions are those of the report that was sent last.
func (p *Pace) Conditions() []metav1.Condition { return p.last.Conditions }

// failures reports whether an amount is clearly less than it was.
func failures(before, now *v1alpha1.BatchAmount) bool {
	if before == nil || before.Amount.Sign() <= 0 {
		return false
	}
	if now == nil || now.Amount.Sign() <= 0 {
		return true
	}
	was, is := milli(before.Amount), milli(now.Amount)
	return was-is > was*fallPercent/100
}

// frees reports whether less is requested of what is promised for that reason
// alone. Until that is reported, the scheduler takes the free amount as
// promised.
func frees(before, now *v1alpha1.BatchAmount) bool {
	return before != nil && before.Requested != nil && before.Requested.Cmp(before.Amount) > 0 &&
		now != nil && now.Requested != nil && now.Requested.Cmp(*before.Requested) < 0
}

// milli is an amount in thousandths: a node's memory is far from the largest.
func milli(q resource.Quantity) float64 { return q.AsApproximateFloat64() * 1000 }

// differ reports whether two reports tell different news. The use of the node,
// and how a decision is worded, change all the time and are none.
func differ(a, b v1alpha1.NodeReportStatus) bool {
	return !sameAmount(a.Batch.CPU, b.Batch.CPU) || !sameAmount(a.Batch.Memory, b.Batch.Memory) ||
		a.Isolation != b.Isolation || !samePods(a.Pods, b.Pods) ||
		!slices.EqualFunc(a.Means, b.Means, func(a, b v1alpha1.Means) bool { return a.Feature == b.Feature && a.By == b.By }) ||
		!slices.EqualFunc(a.Conditions, b.Conditions, func(a, b metav1.Condition) bool {
			return a.Type == b.Type && a.Status == b.Status && a.Reason == b.Reason
		})
}

func sameAmount(a, b *v1alpha1.BatchAmount) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Amount.Cmp(b.Amount) == 0 && a.Policy == b.Policy && (a.Degraded == "") == (b.Degraded == "") &&
		sameQuantity(a.Requested, b.Requested)
}

func sameQuantity(a, b *resource.Quantity) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Cmp(*b) == 0)
}
