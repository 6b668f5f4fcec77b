package colocation

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// placedRuns returns runs of an experiment with eight batch pods. Under Tenon one block
// has a pod less.
func placedRuns(e Experiment) []Run {
	runs := inventedRuns(e, 0.01)
	for i := range runs {
		p := BatchPods{Created: 8, Placed: 8, Each: 125}
		switch runs[i].Mode {
		case report.Default:
		case report.Burstable:
			p.Placed, p.Resource, p.Allocatable, p.Free = 1, "cpu", 1000, 230
		case report.Tenon:
			p.Placed, p.Resource, p.Allocatable, p.Free = 6, "kubernetes.io/batch-cpu", 800, 760
			if runs[i].Block == 1 {
				p.Placed, p.Free = 5, 740
			}
		default:
			continue
		}
		runs[i].BatchPods = &p
	}
	return runs
}

func placedExperiment() Experiment {
	e := inventExperiment(4, report.Exclusive, report.Default, report.Burstable, report.Tenon)
	e.Kubernetes, e.BatchPods = &KubernetesSetup{Node: "worker-1"}, 8
	return e
}

// TestTheCountsOfBatchPodsAreInTheResult checks that the result has what the scheduler
// counted in each mode, and that a mode without batch pods has nothing.
func TestTheCountsOfBatchPodsAreInTheResult(t *testing.T) {
	e := placedExperiment()
	r := analyse(e, placedRuns(e))
	for mode, want := range map[report.Mode]*BatchPodsResult{
		report.Exclusive: nil,
		report.Default:   {Created: 8, Placed: 8, Least: 8, Most: 8, Each: 125},
		report.Burstable: {Created: 8, Placed: 1, Least: 1, Most: 1, Each: 125, Resource: "cpu", Counted: 125, Allocatable: 1000, Free: 230},
		report.Tenon:     {Created: 8, Placed: 6, Least: 5, Most: 6, Each: 125, Resource: "kubernetes.io/batch-cpu", Counted: 750, Allocatable: 800, Free: 760},
	} {
		if diff := cmp.Diff(want, r.Modes[mode].BatchPods); diff != "" {
			t.Errorf("%s: %s", mode, diff)
		}
	}
}

// TestCountsAndLatencyStandTogether checks the table, the last sentences and the picture.
func TestCountsAndLatencyStandTogether(t *testing.T) {
	e := placedExperiment()
	p := analysis(e, placedRuns(e)).Page()
	var text, html bytes.Buffer
	if err := p.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if err := p.WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if n := textlayout.Columns(strings.TrimSuffix(line, "\n")); n > textlayout.Width {
			t.Errorf("a line has %d characters: %s", n, line)
		}
	}
	for _, want := range []string{
		"8 batch pods, each with ffmpeg, 1 process of 2 threads", "batch pods ran – 8 of 8 1 of 8 5 to 6 of 8", "counted – nothing 125m 750m", "of free – – 230m 760m",
		"Of 8 batch pods that each ask for 125m: as BestEffort pods 8 ran, and the scheduler counts nothing; with CPU requests 1 ran, and the scheduler counts 125m of 230m cpu; under Tenon 5 to 6 ran, and the scheduler counts 750m of 760m kubernetes.io/batch-cpu.",
	} {
		if said := strings.Join(strings.Fields(text.String()), " "); !strings.Contains(said, want) {
			t.Errorf("%q is missing:\n%s", want, &text)
		}
	}
	if strings.Contains(text.String(), "REFUSED") || strings.Contains(text.String(), "exclusive-warm") {
		t.Errorf("a claim is listed whose modes this experiment does not have:\n%s", &text)
	}
	if n := len(p.Short.Items); n == 0 || n > maxSentences {
		t.Errorf("%d last sentences", n)
	}
	placed, unplaced := strings.Count(html.String(), `class="placed"`), strings.Count(html.String(), `class="unplaced"`)
	if placed != 8+1+6 || unplaced != 7+2 {
		t.Errorf("the picture has %d pods that ran and %d without room", placed, unplaced)
	}
	for _, label := range []string{"P90 latency", "P99 latency", "waiting for a CPU", "thousandths of a CPU"} {
		if !strings.Contains(html.String(), label) {
			t.Errorf("the picture lacks %q", label)
		}
	}
	if strings.Contains(html.String(), "NaN") || strings.Contains(html.String(), "Inf") {
		t.Error("the page has a number that is none")
	}
}

// TestAnExperimentWithoutBatchPodsIsAsBefore checks that nothing of them is shown then.
func TestAnExperimentWithoutBatchPodsIsAsBefore(t *testing.T) {
	e := placedExperiment()
	e.BatchPods = 0
	var html bytes.Buffer
	if err := analysis(e, inventedRuns(e, 0.01)).Page().WriteHTML(&html); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(html.String(), "batch pods") || strings.Contains(html.String(), `class="placed"`) {
		t.Error("the page shows batch pods that no scheduler placed")
	}
}
