package conformance

import (
	"slices"
	"testing"

	"tenon.sh/tenon/internal/model/node"
)

// proof lists, for each kind of knob, facts that fail if Tenon does not read
// and write the knob as the kernel requires. TestEveryKnobIsProved adds the facts
// that go over all knobs of a category.
var proof = map[node.File][]string{
	node.FileCPUWeight:    {"an applied value shows as it was rounded", "an odd weight survives idle"},
	node.FileCPUMax:       {"an applied value shows as it was rounded", "quota, period and burst change together"},
	node.FileCPUs:         {"an applied value shows as it was rounded", "a released set of CPUs gives tasks all of the parent's back"},
	node.FileMems:         {"an empty set of memory nodes means the parent's", "a memory node that does not exist is refused"},
	node.FileMemory:       {"an applied value shows as it was rounded", "memory limits are rounded down to pages"},
	node.FilePIDs:         {"a negative or huge number of tasks is refused"},
	node.FileRun:          {"a workload is frozen until it is released", "a workload that is asked to end ends"},
	node.FileIOMax:        {"I/O limits change and come back"},
	node.FileIOWeight:     {"a weight of I/O outside 1 to 10000 is refused"},
	node.FileBFQWeight:    {"a weight of bfq outside 1 to 1000 is refused"},
	node.FileIOLatency:    {"a target of 0 means no target"},
	node.FileControlGroup: {"the tasks of a workload join its control group and leave it"},
	node.FileL3:           {"a part of the caches shows as it was applied"},
	node.FileMB:           {"a part of the bandwidth shows as it was rounded"},
	node.FileIdentity:     {"a group is marked with each identity"},
	node.FileScheduler:    {"the scheduler comes and goes"},
	node.FileCookie:       {"without siblings there are no cookies"},

	node.FileSchedulerGroup: {"orders end with the scheduler", "a cgroup that does not exist gets no order", "a slot that does not exist is refused"},
	node.FileSchedulerCap:   {"orders end with the scheduler"},
}

// TestEveryKnobIsProved checks that each kind of knob has a fact in proof. The
// error names the knob that has none.
func TestEveryKnobIsProved(t *testing.T) {
	for _, f := range node.FilesOf(node.CategoryThreads) { // the fact goes over all of them
		proof[f] = append(proof[f], "a task that enters a group later is seen")
	}
	for _, l := range node.LimitFiles { // this one, too
		proof[l.File] = append(proof[l.File], "an applied value shows as it was rounded")
	}
	if wrong := node.MissingFiles(proof); wrong != "" {
		t.Error(wrong)
	}
	var names []string
	for _, f := range append(Facts(1), Facts(2)...) {
		names = append(names, f.Name)
	}
	for _, f := range IsolationFacts() {
		names = append(names, f.Name)
	}
	for _, f := range ControlFacts() {
		names = append(names, f.Name)
	}
	for file, facts := range proof {
		if len(facts) == 0 {
			t.Errorf("%s has no fact", file)
		}
		for _, name := range facts {
			if !slices.Contains(names, name) {
				t.Errorf("%s: there is no fact %q", file, name)
			}
		}
	}
}
