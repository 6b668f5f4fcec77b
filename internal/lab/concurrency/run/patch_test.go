package run

import (
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// adviceOn returns advice from an experiment with one cell.
func adviceOn(t *testing.T, c jobs.Cell, cpuSeconds float64) concurrency.Advice {
	t.Helper()
	at := time.Unix(1e9, 0).UTC()
	var all []jobs.Job
	for i := range c.Concurrency {
		all = append(all, jobs.Job{
			Host: "a", Type: c.Type, Concurrency: c.Concurrency, CPU: c.CPU, Memory: c.Memory, Index: i, In: at, Out: at.Add(10 * time.Second),
			Extra: jobs.Extra{Strategy: c.Strategy, Threads: c.Threads, CPUSeconds: node.Some(cpuSeconds)},
		})
	}
	a, err := concurrency.Analyse(concurrency.Experiment{}, all).Advise(jobs.Goal{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// TestAPatchDoesWhatItsStrategyDid compares the amounts, labels and annotations in
// the patch of each strategy. The node has four CPUs.
func TestAPatchDoesWhatItsStrategyDid(t *testing.T) {
	const two = "spec: parallelism: 2 template: "
	const pod = "spec: containers: - name: \"t\" resources: "
	for _, c := range []struct {
		cell         jobs.Cell
		says, writes string
	}{
		{jobs.Cell{Strategy: "quota", CPU: 1500, Memory: gib, Concurrency: 2}, "", two + pod + `requests: cpu: "1500m" memory: "1073741824" limits: cpu: "1500m" memory: "1073741824"`},
		// The kubelet must not give it CPUs of its own.
		{jobs.Cell{Strategy: "quota", CPU: 2000, Concurrency: 2}, "1m less", two + pod + `requests: cpu: "1999m" limits: cpu: "2000m"`},
		{jobs.Cell{Strategy: "quota", CPU: 1500, Concurrency: 3}, "Pending", strings.Replace(two, "2", "3", 1) + pod + `requests: cpu: "1333m" limits: cpu: "1500m"`},
		{jobs.Cell{Strategy: "matched", CPU: 1500, Threads: 2, Concurrency: 2}, "-threads 2", two + pod + `requests: cpu: "1500m" limits: cpu: "1500m"`},
		{jobs.Cell{Strategy: "burst", CPU: 500, Concurrency: 2}, "--burst-max", two + pod + `requests: cpu: "500m" limits: cpu: "3000m"`},
		{jobs.Cell{Strategy: "burst", CPU: 1750, Concurrency: 2}, "", two + pod + `requests: cpu: "1750m" limits: cpu: "3500m"`},
		{jobs.Cell{Strategy: "unbounded", CPU: 2000, Concurrency: 2, Threads: 1}, "given 1 thread.", two + pod + `requests: cpu: "612m" limits: cpu: null`},
		{jobs.Cell{Strategy: "pinned", CPU: 1500, Concurrency: 2}, "", two + `metadata: labels: koordinator.sh/qosClass: "LSR" ` + pod + `requests: cpu: "2000m" limits: cpu: null`},
		{jobs.Cell{Strategy: "pinned", CPU: 2000, Concurrency: 4}, "only 2 of them", two + `metadata: labels: koordinator.sh/qosClass: "LSR" ` + pod + `requests: cpu: "2000m" limits: cpu: null`},
		{jobs.Cell{Strategy: "static", CPU: 2000, Memory: gib, Concurrency: 2}, "Guaranteed", two + pod + `requests: cpu: "2000m" memory: "1073741824" limits: cpu: "2000m" memory: "1073741824"`},
		{jobs.Cell{Strategy: "static", CPU: 2000, Concurrency: 2}, "Add memory", two + pod + `requests: cpu: "2000m" limits: cpu: "2000m"`},
		{jobs.Cell{Strategy: "static-burst", CPU: 1500, Concurrency: 2}, "L3", two + `metadata: annotations: cpu-policy: "static-burst" cpuset-scheduler: "true" ` + pod + `requests: cpu: "1500m" limits: cpu: "1500m"`},
		{
			jobs.Cell{Strategy: "tenon", CPU: 1000, Concurrency: 2}, "batch resources", two + `metadata: labels: koordinator.sh/qosClass: "BE" ` + pod +
				`requests: cpu: null kubernetes.io/batch-cpu: "1000" kubernetes.io/batch-memory: "268435456" memory: null limits: cpu: null kubernetes.io/batch-cpu: "1000" kubernetes.io/batch-memory: "268435456" memory: null`,
		},
		{jobs.Cell{Type: "aws", CPU: 1500, Concurrency: 2}, "is not known", two + pod + `requests: cpu: "1500m" limits: cpu: "1500m"`},
	} {
		p := Patch{Advice: adviceOn(t, c.cell, 6.125), Node: concurrency.Node{CPUs: 4}, Container: "t", Burst: 3000}
		text, notes := p.Text()
		if got := strings.Join(strings.Fields(text), " "); got != c.writes {
			t.Errorf("%+v:\n%s\nwant\n%s", c.cell, got, c.writes)
		}
		if !strings.Contains(strings.Join(notes, " "), c.says) {
			t.Errorf("%+v: notes %q, want %q in them", c.cell, notes, c.says)
		}
	}
}

// TestAPatchRequestsNoMoreThanTheNodeHas uses three jobs without a limit on
// four CPUs. Each job used 4/3 CPUs.
func TestAPatchRequestsNoMoreThanTheNodeHas(t *testing.T) {
	for _, cpus := range []int{2, 3, 4, 8} {
		to := Patch{Advice: adviceOn(t, jobs.Cell{Strategy: "unbounded", Concurrency: 3}, 10*4.0/3), Node: concurrency.Node{CPUs: cpus}}.plan()
		request, err := unit.ParseMilliCPU(to.requests["cpu"].(string))
		if err != nil || to.jobs != 3 || 3*request > unit.CPUs(cpus) || request < 600 {
			t.Errorf("%d CPUs: %d jobs with requests of %v, %v", cpus, to.jobs, request, err)
		}
	}
}

func TestNamesOfContainersAreChecked(t *testing.T) {
	for name, good := range map[string]bool{
		"transcoder": true, "a": true, "job-1": true, strings.Repeat("a", 63): true,
		"": false, "A": false, "a_b": false, "-a": false, "a-": false, "a b": false, "a\nb": false, strings.Repeat("a", 64): false,
	} {
		if err := (Patch{Container: name}).Check(); (err == nil) != good {
			t.Errorf("%q: %v", name, err)
		}
	}
}

// TestNoPatchFromAUseThatIsNotKnown advises jobs whose CPU in the name is a request, or
// that ran without a limit, with and without a measured CPU time.
func TestNoPatchFromAUseThatIsNotKnown(t *testing.T) {
	for name, c := range map[string]struct {
		cell     jobs.Cell
		measured bool
		refused  bool
	}{
		"unbounded":           {jobs.Cell{Type: "aws", Strategy: "unbounded", Concurrency: 1, CPU: 5000}, false, true},
		"no CPU at all":       {jobs.Cell{Type: "aws", Concurrency: 1}, false, true},
		"burst":               {jobs.Cell{Type: "aws", Strategy: "burst", Concurrency: 1, CPU: 5000}, false, true},
		"the whole node":      {jobs.Cell{Type: "aws-16cx1", Concurrency: 1, CPU: 5000}, false, true},
		"unbounded, measured": {jobs.Cell{Type: "aws", Strategy: "unbounded", Concurrency: 1, CPU: 5000}, true, false},
		"burst, measured":     {jobs.Cell{Type: "aws", Strategy: "burst", Concurrency: 1, CPU: 5000}, true, false},
		"a quota":             {jobs.Cell{Type: "aws", Strategy: "quota", Concurrency: 1, CPU: 5000}, false, false},
	} {
		at := time.Unix(1e9, 0).UTC()
		j := jobs.Job{Host: "a", Type: c.cell.Type, Concurrency: 1, CPU: c.cell.CPU, In: at, Out: at.Add(15 * time.Second), Extra: jobs.Extra{Strategy: c.cell.Strategy}}
		if c.measured {
			j.Extra.CPUSeconds = node.Some(30.0)
		}
		a, err := concurrency.Analyse(concurrency.Experiment{Imported: []string{"a"}}, []jobs.Job{j}).Advise(jobs.Goal{}, 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := (Patch{Advice: a, Container: "t"}).CheckUse(); (err != nil) != c.refused || c.refused && !strings.Contains(err.Error(), "nothing says how much CPU they used") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}
