package prospect

import (
	"testing"
)

// TestJobsAreCountedForTheTimeOfTheirNode has an outlook of ten hours.
func TestJobsAreCountedForTheTimeOfTheirNode(t *testing.T) {
	const from, hour = 29_000_000, 3600
	const begin = from * 60
	all := []Outlook{{Name: "a", From: from, To: from + 600}, {Name: "b", From: from, To: from + 600}}
	for name, c := range map[string]struct {
		pod  JobPod
		want Jobs
		runs bool
	}{
		"half of the time":   {JobPod{Node: "a", Begin: begin + hour, Ended: true, End: begin + 6*hour}, Jobs{Pods: 1, CPU: 2000, Memory: 4 << 30}, false},
		"runs, began before": {JobPod{Node: "b", Begin: begin - 90*hour, Runs: true}, Jobs{Pods: 1, CPU: 4000, Memory: 8 << 30, Running: 1, RunningCPU: 4000, Unmeasured: 1}, true},
		"starts":             {JobPod{Node: "b", Begin: begin + 5*hour}, Jobs{Pods: 1, CPU: 2000, Memory: 4 << 30, Starting: 1, StartingCPU: 4000}, false},
		"ended before":       {JobPod{Node: "a", Begin: begin - 9*hour, Ended: true, End: begin - hour}, Jobs{}, false},
		"began after":        {JobPod{Node: "a", Begin: begin + 11*hour, Runs: true}, Jobs{Running: 1, RunningCPU: 4000, Unmeasured: 1}, true},
		"ended some time":    {JobPod{Node: "a", Begin: begin, Ended: true}, Jobs{Untimed: 1}, false},
		"elsewhere":          {JobPod{Node: "c", Begin: begin, Runs: true}, Jobs{}, false},
		"waits":              {JobPod{}, Jobs{Waiting: 1, WaitingCPU: 4000}, false},
		"ended unbound":      {JobPod{Ended: true}, Jobs{}, false},
	} {
		c.pod.CPU, c.pod.Memory = 4000, 8<<30
		count := CountJobs(all, true)
		if runs := count.Add(c.pod); runs != c.runs {
			t.Errorf("%s: runs %v", name, runs)
		}
		if got := count.Done(0, 0); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
	some := CountJobs(all[:1], false)
	some.Add(JobPod{CPU: 1000})
	some.Add(JobPod{Node: "a", Runs: true})
	some.Add(JobPod{Node: "a", Runs: true})
	if got := some.Done(7, 1); got.Waiting != 0 || got.Used.Or(0) != 7 || got.Unmeasured != 1 {
		t.Errorf("of a part of the nodes: %+v", got)
	}
}
