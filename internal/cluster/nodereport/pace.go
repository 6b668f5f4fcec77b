package nodereport

import (
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/api/v1alpha1"
)

const (
	// minGap is the minimum time between two reports. A decrease of the batch
	// resources is reported after this time. minGap is below one second because the
	// time between periodic ticks varies: with a second, about every other tick of a
	// fall would come too early, and its decrease would wait for the next tick.
	minGap = 900 * time.Millisecond
	// changeGap is the minimum time before a report of any other change.
	changeGap = 10 * time.Second
	// heartbeat is the maximum time between two reports. Each report shows that
	// the agent is alive. Schedulers accept no shorter time for a report that is
	// too old (minStale in package scheduler/plugin).
	heartbeat = time.Minute
	// fallPercent is the decrease of the batch resources, in percent, above which
	// the next report waits only for minGap. A smaller decrease waits for
	// changeGap, so that noise does not cause a patch every second.
	fallPercent = 2
)

// A Pace decides when to send a report. The zero Pace has sent no report.
type Pace struct {
	sent time.Time
	last v1alpha1.NodeReportStatus
}

// IsResting reports whether it is too early for any report.
func (p *Pace) IsResting(at time.Time) bool {
	passed := at.Sub(p.sent)
	return !p.sent.IsZero() && passed >= 0 && passed < minGap
}

// Due reports whether to send a report now.
func (p *Pace) Due(at time.Time, next v1alpha1.NodeReportStatus) bool {
	passed := at.Sub(p.sent)
	switch {
	case p.sent.IsZero() || passed < 0: // the first report, or the clock was set back
		return true
	case p.IsResting(at):
		return false
	case passed >= heartbeat || hasFallen(p.last.Batch.CPU, next.Batch.CPU) || hasFallen(p.last.Batch.Memory, next.Batch.Memory),
		hasFreed(p.last.Batch.CPU, next.Batch.CPU), hasFreed(p.last.Batch.Memory, next.Batch.Memory),
		!reflect.DeepEqual(p.last.CPUs, next.CPUs): // schedulers choose CPUs by this field
		return true
	}
	return passed >= changeGap && reportsDiffer(p.last, next)
}

// Sent records that a report was given to the sender.
func (p *Pace) Sent(at time.Time, status v1alpha1.NodeReportStatus) { p.sent, p.last = at, status }

// Conditions returns the conditions of the last report.
func (p *Pace) Conditions() []metav1.Condition { return p.last.Conditions }

// hasFallen reports whether an amount has decreased by more than fallPercent.
func hasFallen(before, now *v1alpha1.BatchAmount) bool {
	if before == nil || before.Amount.Sign() <= 0 {
		return false
	}
	if now == nil || now.Amount.Sign() <= 0 {
		return true
	}
	was, is := toMilli(before.Amount), toMilli(now.Amount)
	return was-is > was*fallPercent/100
}

// hasFreed reports whether the requests of running pods were above the reported
// amount and are lower now. While they are above it, the manager publishes an
// amount as large as the requests. Until the manager knows of the decrease, the
// scheduler gives the freed part to new pods.
func hasFreed(before, now *v1alpha1.BatchAmount) bool {
	return before != nil && before.Requested != nil && before.Requested.Cmp(before.Amount) > 0 &&
		now != nil && now.Requested != nil && now.Requested.Cmp(*before.Requested) < 0
}

// toMilli returns a quantity in thousandths, as a float. A float has room for
// the memory of a node.
func toMilli(q resource.Quantity) float64 { return q.AsApproximateFloat64() * 1000 }

// reportsDiffer reports whether two reports differ. It ignores resource usage
// and the texts of reasons, which change all the time.
func reportsDiffer(a, b v1alpha1.NodeReportStatus) bool {
	return !sameAmount(a.Batch.CPU, b.Batch.CPU) || !sameAmount(a.Batch.Memory, b.Batch.Memory) ||
		(a.Outlook == nil) != (b.Outlook == nil) || // a new one waits for the heartbeat: all nodes make it at the same hours
		a.Isolation != b.Isolation || !sameTrials(a.Trials, b.Trials) || !sameObjectives(a.Objectives, b.Objectives) || !samePods(a.Pods, b.Pods) ||
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
