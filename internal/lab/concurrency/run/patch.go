package run

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/lab/concurrency"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/model/unit"
)

// A Patch is advice in the form of a strategic merge patch for a Job.
type Patch struct {
	Advice concurrency.Advice
	Node   concurrency.Node // on which the jobs run
	// Container is the name of the Job's container.
	Container string
	// Burst is the least limit of strategy burst.
	Burst unit.MilliCPU
}

// containerName is the form of the name of a container, an RFC 1123 label.
var containerName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// Check returns an error unless the container's name is one that the API server accepts.
func (p Patch) Check() error {
	if !containerName.MatchString(p.Container) {
		return fmt.Errorf("%q: want the name of a container: 1 to 63 of a-z, 0-9 and -, without a - at its ends", p.Container)
	}
	return nil
}

// CheckUse returns an error if the patch would need to know how much CPU the jobs used,
// and that is not known: it sets their request if they have no limit.
func (p Patch) CheckUse() error {
	c := p.Advice.Cell()
	if p.Advice.Limit > 0 || p.Advice.CPUSeconds.Known() || cmp.Or(c.Strategy, c.Type) == string(Tenon) {
		return nil
	}
	return fmt.Errorf("no patch for %s: the jobs have no known limit, and nothing says how much CPU they used, so no request follows from it", p.Advice.How)
}

// A plan has the values that a patch sets.
type plan struct {
	jobs                int
	labels, annotations map[string]string
	limits, requests    kubectl.Object
	notes               []string
}

// Text returns the patch and notes about it. The notes are sentences for a person.
func (p Patch) Text() (patch string, notes []string) {
	to := p.plan()
	var b strings.Builder
	fmt.Fprintf(&b, "spec:\n  parallelism: %d\n  template:\n", to.jobs)
	if len(to.labels)+len(to.annotations) > 0 {
		b.WriteString("    metadata:\n")
		for _, list := range []struct {
			name string
			of   map[string]string
		}{{"labels", to.labels}, {"annotations", to.annotations}} {
			if len(list.of) > 0 {
				fmt.Fprintf(&b, "      %s:\n", list.name)
			}
			for _, key := range slices.Sorted(maps.Keys(list.of)) {
				fmt.Fprintf(&b, "        %s: %q\n", key, list.of[key])
			}
		}
	}
	fmt.Fprintf(&b, "    spec:\n      containers:\n      - name: %q\n        resources:\n", p.Container)
	for _, list := range []struct {
		name string
		of   kubectl.Object
	}{{"requests", to.requests}, {"limits", to.limits}} {
		fmt.Fprintf(&b, "          %s:\n", list.name)
		for _, key := range slices.Sorted(maps.Keys(list.of)) {
			value := "null"
			if text, is := list.of[key].(string); is {
				value = strconv.Quote(text)
			}
			fmt.Fprintf(&b, "            %s: %s\n", key, value)
		}
	}
	return b.String(), to.notes
}

// plan translates the advice into the form of the lab's own Jobs. If the lab runs a
// strategy only without Kubernetes, plan uses labels and annotations of Tenon for it.
func (p Patch) plan() plan {
	c := p.Advice.Cell()
	cell := Cell{Strategy: Strategy(cmp.Or(c.Strategy, c.Type)), Jobs: p.Advice.Jobs, Limit: p.Advice.Limit, Memory: p.Advice.Memory, Threads: c.Threads}
	to := plan{jobs: p.Advice.Jobs}
	note := func(format string, args ...any) { to.notes = append(to.notes, fmt.Sprintf(format, args...)) }
	if !slices.Contains(Strategies, cell.Strategy) {
		note("How the CPUs were divided among the jobs is not known: the patch sets the limit as a quota.")
		cell.Strategy = Quota
	}
	if cell.Limit == 0 && cell.Strategy != Tenon {
		cell.Strategy = Unbounded
	}
	whole := (cell.Limit + 999) / 1000 * 1000
	need := nodes.Amounts{CPU: cell.Limit, Memory: cell.Memory}
	switch cell.Strategy {
	case Unbounded:
		need.CPU = max(unit.MilliCPU(p.Advice.CPUs()*1000), 1)
		note("The request is what a job used on average.")
	case PinnedSlices, PinnedBlind:
		need.CPU = whole
		to.labels = map[string]string{nodes.ClassLabel: "LSR"}
		note("Class LSR gives each pod CPUs of its own, if Tenon or Koordinator runs on the node; in the lab jobs beyond the number of slices shared one.")
	case Static:
		need.CPU, cell.Limit = whole, whole
		note("The kubelet gives exclusive CPUs to a Guaranteed pod only, and only with its CPU manager policy static.")
		if cell.Memory == 0 {
			note("Add memory, with the request equal to the limit: without it the pod is not Guaranteed, and the experiment had no memory limit.")
		}
	case StaticBurst:
		to.annotations = map[string]string{"cpuset-scheduler": "true", "cpu-policy": "static-burst"}
		note("The annotations give a pod the CPUs of one L3 cache or NUMA node, if Tenon runs on the node.")
	case Burst:
		note("The limit is twice the one of the advice, or --burst-max if that is more.")
	case Tenon:
		need = nodes.Amounts{BatchCPU: cell.Limit, BatchMemory: cmp.Or(cell.Memory, minBatchMemory)}
		to.labels = map[string]string{nodes.ClassLabel: "BE"}
		note("The pods need batch resources of Tenon: how much a node offers stands in kubectl tenon explain node NODE.")
	}
	if cell.Strategy != Tenon {
		p.fit(cell.Strategy, &need, &to.jobs)
		note("The kubelet reserves a part of each node, and other pods have requests, too: if a pod stays Pending, lower the requests or parallelism.")
	}
	if to.jobs < p.Advice.Jobs {
		note("The advice is %d jobs at once, but only %d of them find whole CPUs of their own on a node of %d CPUs.", p.Advice.Jobs, to.jobs, p.Node.CPUs)
	}
	to.limits, to.requests = resourcesOf(cell, need, max(2*cell.Limit, p.Burst), true)
	if need.CPU > 0 && to.requests["cpu"] != need.CPU.String() {
		note("The request is 1m less than a whole number of CPUs, so that a kubelet with CPU manager policy static does not pin the pod.")
	}
	remove(cell.Strategy, &to)
	switch {
	case cell.Threads > 0:
		note("Each job of the experiment was given %s. A patch cannot set this: set it in the command of the job (ffmpeg: -threads %d).", threadsText(cell.Threads), cell.Threads)
	case cell.Strategy == Matched:
		note("Give a job as many threads as its limit, in its command.")
	}
	return to
}

// fit lowers the requests, or the number of jobs if a request must be whole.
// All jobs together then request at most the CPUs of the node.
func (p Patch) fit(s Strategy, need *nodes.Amounts, jobs *int) {
	all := unit.CPUs(p.Node.CPUs)
	if all == 0 || need.CPU*unit.MilliCPU(*jobs) <= all {
		return
	}
	switch s {
	case PinnedSlices, PinnedBlind, Static:
		*jobs = int(max(all/need.CPU, 1))
	default:
		need.CPU = max(all/unit.MilliCPU(*jobs), 1)
	}
}

// remove adds to the plan what the patch must delete from a Job, because the
// Job may have been written for another strategy.
func remove(s Strategy, to *plan) {
	if s == Tenon {
		for _, list := range []kubectl.Object{to.limits, to.requests} {
			list["cpu"], list["memory"] = nil, nil
		}
		return
	}
	if _, has := to.limits["cpu"]; !has {
		to.limits["cpu"] = nil
	}
}

func threadsText(n int) string {
	if n == 1 {
		return "1 thread"
	}
	return fmt.Sprintf("%d threads", n)
}
