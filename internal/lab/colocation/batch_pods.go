package colocation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/chart"
	"tenon.sh/tenon/internal/lab/claim"
	"tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/stat"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/unit"
)

// BatchPods says what the scheduler of a cluster made of the batch pods of a run.
type BatchPods struct {
	Created int `json:"created"`
	// Placed of them ran. The others found no room, and were removed before the run.
	Placed int           `json:"placed"`
	Each   unit.MilliCPU `json:"each_mcpu"` // what each asks for
	// Resource is the name of the resource by which they ask. It is empty if they have
	// no requests, so that the scheduler counts nothing for them.
	Resource string `json:"resource,omitempty"`
	// Allocatable is the amount of that resource on the node, and Free what other pods,
	// the service among them, have not requested of it.
	Allocatable unit.MilliCPU `json:"allocatable_mcpu"`
	Free        unit.MilliCPU `json:"free_mcpu"`
}

// counted returns the CPU that the scheduler counts for the pods that ran.
func (p BatchPods) counted() unit.MilliCPU {
	if p.Resource == "" {
		return 0
	}
	return p.Each * unit.MilliCPU(p.Placed)
}

// A BatchPodsResult is what the scheduler made of the batch pods of a mode. Numbers are
// medians over the blocks.
type BatchPodsResult struct {
	Created     int           `json:"created"`
	Placed      report.Number `json:"placed"`
	Least       int           `json:"placed_least"` // in a block
	Most        int           `json:"placed_most"`
	Each        unit.MilliCPU `json:"each_mcpu"`
	Resource    string        `json:"resource,omitempty"`
	Counted     report.Number `json:"counted_mcpu"` // requests of the pods that ran
	Allocatable report.Number `json:"allocatable_mcpu"`
	Free        report.Number `json:"free_mcpu"`
}

// batchPodsOf summarises the batch pods of a mode. It returns nil if no run of the mode
// has such pods.
func (c fullExperiment) batchPodsOf(ev report.Evidence, mode report.Mode) *BatchPodsResult {
	runs := ev.Runs(mode)
	i := slices.IndexFunc(runs, func(r report.Run) bool { return c.pods[r.Index] != nil })
	if i < 0 {
		return nil
	}
	sample := func(of func(BatchPods) float64) stat.Sample {
		return ev.Sample(mode, func(r report.Run) float64 {
			if p := c.pods[r.Index]; p != nil {
				return of(*p)
			}
			return report.KnownOrNaN(0, false)
		})
	}
	median := func(of func(BatchPods) float64) report.Number { return report.Number(stat.Median(sample(of))) }
	placed := func(p BatchPods) float64 { return float64(p.Placed) }
	all := slices.Collect(maps.Values(sample(placed)))
	first := c.pods[runs[i].Index]
	return &BatchPodsResult{
		Created: first.Created, Each: first.Each, Resource: first.Resource,
		Placed: median(placed), Least: int(slices.Min(all)), Most: int(slices.Max(all)),
		Counted:     median(func(p BatchPods) float64 { return float64(p.counted()) }),
		Allocatable: median(func(p BatchPods) float64 { return float64(p.Allocatable) }),
		Free:        median(func(p BatchPods) float64 { return float64(p.Free) }),
	}
}

// ran says how many of the pods ran.
func (p BatchPodsResult) ran() string {
	if p.Least == p.Most {
		return fmt.Sprint(p.Most)
	}
	return fmt.Sprintf("%d to %d", p.Least, p.Most)
}

// countedText says what the scheduler counts for the pods that ran.
func (p BatchPodsResult) countedText() string {
	if p.Resource == "" {
		return "nothing"
	}
	return report.FormatNumber(p.Counted, 0) + "m"
}

// freeText says how much the scheduler had for the pods.
func (p BatchPodsResult) freeText() string {
	if p.Resource == "" {
		return report.Unknown
	}
	return report.FormatNumber(p.Free, 0) + "m"
}

// batchPodRows are the rows about the scheduler.
func (c fullExperiment) batchPodRows() []report.Row {
	row := func(name string, text func(BatchPodsResult) string) report.Row {
		return report.Row{Name: name, Text: func(in report.InMode) string {
			if p := c.placed[in.Mode]; p != nil {
				return text(*p)
			}
			return report.Unknown
		}}
	}
	return []report.Row{
		row("batch pods ran", func(p BatchPodsResult) string { return fmt.Sprintf("%s of %d", p.ran(), p.Created) }),
		row("  counted", BatchPodsResult.countedText),
		row("  of free", BatchPodsResult.freeText),
	}
}

const batchPodLegend = " Batch pods: how many of those that were created found room on the node and ran; counted: what the scheduler counts for these, by their requests; of free: what it had for them, on a node with the service."

// batchPodClaims judges the claims about the three ways to ask for CPU. That Tenon leaves
// no CPU idle is none of them: its pods may use what they request.
func batchPodClaims(ev report.Evidence) []report.Claim {
	var out []report.Claim
	if ev.Asked(report.Tenon) && ev.Asked(report.Burstable) {
		out = append(out, burstableClaim(ev))
	}
	if ev.Asked(report.Tenon) && ev.Asked(report.Default) {
		pair := claim.Pair{Plain: report.Default, Tenon: report.Tenon, Measures: comparedMeasures}
		out = append(out, claim.Comparisons(ev, []claim.Pair{pair})...)
	}
	return claim.ExplainTies(ev, out)
}

// podWords say how the batch pods of a mode ask for CPU.
var podWords = map[report.Mode]string{
	report.Default: "as BestEffort pods", report.Burstable: "with CPU requests", report.Tenon: "under Tenon",
}

// batchPodEnding returns the last sentences. The first has what the scheduler counted.
func (c fullExperiment) batchPodEnding(ev report.Evidence, r report.Result) []string {
	var parts []string
	created, each := 0, unit.MilliCPU(0)
	for _, m := range r.Order {
		p := c.placed[m]
		if p == nil || podWords[m] == "" {
			continue
		}
		created, each = p.Created, p.Each
		text := fmt.Sprintf("%s %s ran, and the scheduler counts %s", podWords[m], p.ran(), p.countedText())
		if p.Resource != "" {
			text += fmt.Sprintf(" of %s %s", p.freeText(), p.Resource)
		}
		parts = append(parts, text)
	}
	sentences := ending(ev, r)
	if len(parts) == 0 {
		return sentences
	}
	said := fmt.Sprintf("Of %s that each ask for %v: %s.", textlayout.Plural(created, "batch pod", "batch pods"), each, strings.Join(parts, "; "))
	return append([]string{said}, sentences[:min(len(sentences), maxSentences-1)]...)
}

// batchPodPlots puts what the scheduler counts beside what the service pays for it.
func (c fullExperiment) batchPodPlots(ev report.Evidence, r report.Result, common report.CommonPlots) []page.Plot {
	var rooms []chart.Room
	for _, m := range r.Order {
		room := chart.Room{Name: string(m), Style: report.Colour(m)}
		if p := c.placed[m]; p != nil {
			room.Each, room.Created, room.Placed = float64(p.Each), p.Created, p.Most
			room.Text = fmt.Sprintf("%s of %d ran; counted: %s", p.ran(), p.Created, p.countedText())
			if p.Resource != "" && p.Free.Known() {
				room.Capacity = float64(p.Free)
			}
		}
		rooms = append(rooms, room)
	}
	waits := func(us float64) string { return report.Microseconds(us) + "/s" }
	const title = "What the scheduler counts, and how the service answers"
	picture := chart.Rooms(title, "thousandths of a CPU that the batch pods ask for", rooms, []chart.Panel{
		{Label: "P90 latency", Format: report.Microseconds, Strips: ev.LevelStrips(r.Order, report.P90.Of)},
		{Label: "P99 latency", Format: report.Microseconds, Strips: ev.LevelStrips(r.Order, report.P99.Of)},
		{Label: "waiting for a CPU", Format: waits, Strips: ev.LevelStrips(r.Order, report.Waiting)},
	})
	return []page.Plot{{
		Title: title, Picture: picture,
		Text: "A box is a batch pod, as wide as what it asks for. A filled one ran; a dashed one found no room. The dashed line is the capacity that the scheduler had for them; without a line it counts nothing. The bars beside it are 95 % intervals of the geometric mean over the blocks.",
	}, common.P99Ratio, common.DelayRatio, common.P99, common.Delay}
}
