package run

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/model/unit"
)

// A label and an annotation of the experiment's objects.
const (
	runLabel = "tenon.sh/lab-run" // number of the run
	startKey = "tenon.sh/lab-start"
)

// startFile is the file in which a container finds the annotation startKey.
const startFile = "/tenon/start"

// barrier waits until the pod has the annotation startKey. The kubelet writes
// the annotation to startFile. It is the second of the node's clock at which
// all jobs of the wave begin. Then barrier waits until that second.
const barrier = `until [ -s ` + startFile + ` ]; do sleep 0.2; done
read -r due < ` + startFile + ` || :
while [ "$(date +%s)" -lt "$due" ]; do sleep 0.05; done
`

// job runs the command between two marks in the log. A mark must begin a line,
// but the last output of the command may have no end of line.
const job = `mark start due=$due $TENON_MARK
"$@"
status=$?
echo >&2
mark end status=$status
exit $status
`

// script is the script of a job's container. Its arguments are the command.
func (b *pods) script() string {
	if b.AsPublished {
		return jobs.MarkScript + "due=\n" + job
	}
	return jobs.MarkScript + barrier + job
}

// typeOf returns the word in the column Type.
func (b *pods) typeOf(cell Cell) string {
	if b.Type != "" {
		return strings.ToLower(b.Type)
	}
	return strings.ReplaceAll(string(cell.Strategy), "-", "")
}

// publishedCell returns the cell in the form that the names of its jobs describe.
func (b *pods) publishedCell(cell Cell) jobs.Cell {
	return jobs.Cell{Type: b.typeOf(cell), Concurrency: cell.Jobs, CPU: cell.Limit, Memory: cell.Memory}
}

// manifests returns the Jobs of a run of a cell.
func (b *pods) manifests(cell Cell, index, block int) []kubectl.Object {
	var all []kubectl.Object
	for i := range cell.Jobs {
		own := kubectl.Object{"role": "transcoder", runLabel: strconv.Itoa(index)}
		labels, podLabels := b.space.Labels(own), b.space.Labels(own)
		if cell.Strategy == Tenon {
			podLabels[nodes.ClassLabel] = "BE"
		}
		all = append(all, kubectl.Object{
			"apiVersion": "batch/v1", "kind": "Job",
			"metadata": kubectl.Object{"name": b.publishedCell(cell).JobName(i), "labels": labels},
			"spec": kubectl.Object{
				"parallelism": 1, "backoffLimit": 0,
				"template": kubectl.Object{"metadata": kubectl.Object{"labels": podLabels}, "spec": b.pod(cell, i, index, block)},
			},
		})
	}
	return all
}

// labWord is the kind of the experiment in the label of its objects.
const labWord = "concurrency"

func (b *pods) pod(cell Cell, i, index, block int) kubectl.Object {
	limits, requests := b.resources(cell)
	resources := kubectl.Object{"limits": limits, "requests": requests}
	mark := fmt.Sprintf("strategy=%s block=%d run=%d threads=%d source=%s", cell.Strategy, block, index, cell.Threads, strings.ReplaceAll(b.source(), " ", "_"))
	secured := kubectl.Object{"allowPrivilegeEscalation": false, "capabilities": kubectl.Object{"drop": []string{"ALL"}}}
	mounts := []kubectl.Object{{"name": "start", "mountPath": path.Dir(startFile)}}
	volumes := []kubectl.Object{{"name": "start", "downwardAPI": kubectl.Object{"items": []kubectl.Object{{
		"path": path.Base(startFile), "fieldRef": kubectl.Object{"fieldPath": fmt.Sprintf("metadata.annotations['%s']", startKey)},
	}}}}}
	spec := kubectl.Object{
		"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false, "affinity": nodes.Affinity(b.names()...),
		"securityContext": kubectl.Object{"seccompProfile": kubectl.Object{"type": "RuntimeDefault"}},
	}
	if len(b.Pods.Nodes) > 0 {
		spec["tolerations"] = []kubectl.Object{{"operator": "Exists"}}
	}
	if b.renders() {
		mounts = append(mounts, kubectl.Object{"name": "film", "mountPath": path.Dir(ownFilm)})
		volumes = append(volumes, kubectl.Object{"name": "film", "emptyDir": kubectl.Object{}})
		film := kubectl.Object{
			"name": "film", "image": b.Pods.Image, "imagePullPolicy": "IfNotPresent", "command": filmCommand(b.height),
			"volumeMounts": mounts[1:], "securityContext": secured,
		}
		if cell.Strategy == Static || cell.Strategy == Tenon {
			// Init containers count for the QoS class of the pod, too.
			film["resources"] = resources
		}
		spec["initContainers"] = []kubectl.Object{film}
	}
	spec["containers"] = []kubectl.Object{{
		"name": "transcoder-" + strconv.Itoa(i), "image": b.Pods.Image, "imagePullPolicy": "IfNotPresent",
		"command": append([]string{"sh", "-c", b.script(), "sh"}, b.argv(cell.Threads)...),
		"env": []kubectl.Object{
			{"name": "TENON_JOB", "value": strconv.Itoa(i)}, {"name": "TENON_THREADS", "value": strconv.Itoa(cell.Threads)}, {"name": "TENON_MARK", "value": mark},
		},
		"resources": resources, "volumeMounts": mounts, "securityContext": secured,
	}}
	spec["volumes"] = volumes
	return spec
}

// resources returns the limits and the requests of a job.
func (b *pods) resources(cell Cell) (limits, requests kubectl.Object) {
	return resourcesOf(cell, b.requests(cell), b.Burst(cell.Limit), !b.AsPublished && b.mayPin())
}

// resourcesOf returns the limits and the requests of a job. need is what the
// job requests. burst is the limit of strategy burst. If mayPin is true, a
// kubelet may give exclusive CPUs to eligible pods.
func resourcesOf(cell Cell, need nodes.Amounts, burst unit.MilliCPU, mayPin bool) (limits, requests kubectl.Object) {
	if cell.Strategy == Tenon {
		list := func() kubectl.Object {
			return kubectl.Object{nodes.BatchCPU: strconv.Itoa(int(need.BatchCPU)), nodes.BatchMemory: strconv.Itoa(int(need.BatchMemory))}
		}
		return list(), list()
	}
	limits, requests = kubectl.Object{}, kubectl.Object{}
	switch cell.Strategy {
	case Quota, Matched, Static, StaticBurst:
		limits["cpu"] = cell.Limit.String()
	case Burst:
		limits["cpu"] = burst.String()
	}
	if cell.Memory > 0 {
		limits["memory"], requests["memory"] = amountOf(cell.Memory), amountOf(cell.Memory)
	}
	cpu := need.CPU
	switch cell.Strategy {
	case Static, PinnedSlices, PinnedBlind: // they want whole CPUs
	default:
		if mayPin && cpu > 0 && cpu%1000 == 0 {
			cpu-- // a whole number would make the kubelet pin the job, and there would be no quota
		}
	}
	requests["cpu"] = cpu.String()
	return limits, requests
}

// mayPin reports whether a kubelet gives exclusive CPUs to an eligible pod. It
// also returns true if the policy of a kubelet is not known.
func (b *pods) mayPin() bool {
	for _, t := range b.nodes {
		if t.Policy != "none" {
			return true
		}
	}
	return false
}

func amountOf(m unit.Bytes) string { return strconv.FormatInt(int64(m), 10) }
