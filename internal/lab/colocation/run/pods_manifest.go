package run

import (
	"fmt"
	"strconv"

	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/work"
	"tenon.sh/tenon/internal/model/unit"
)

// The objects of the experiment: its pods, and the ConfigMap of nginx.
const (
	nginxPod  = "nginx"
	batchPod  = "batch"
	nginxConf = "nginx-conf"
)

type object = kubectl.Object

// requestOf returns the CPU request of nginx, which is also its limit: 80/104
// of the tested CPUs, as in the published experiment. The result is never a
// whole number of CPUs, because a kubelet with the static CPU manager policy
// would then give nginx exclusive CPUs.
func requestOf(tested int) unit.MilliCPU {
	m := unit.CPUs(tested) * 80 / 104 / 10 * 10
	if m%1000 == 0 {
		m -= 10
	}
	return m
}

// nginxManifest returns the objects of the service: a ConfigMap and a pod, as
// in the published experiment.
func (b *pods) nginxManifest(tested int) []object {
	conf := podConfig(work.NGINX{Workers: tested, Connections: b.connections()}, b.Port)
	cpu := fmt.Sprintf("%dm", requestOf(tested))
	amounts := object{"cpu": cpu, "memory": "512Mi"}
	return []object{
		{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": object{"name": nginxConf, "labels": b.space.Labels(nil)},
			"data":     object{"nginx.conf": conf},
		},
		b.pod(nginxPod, object{nodes.ClassLabel: "LS"}, object{
			"image": b.Pods.NGINX, "ports": []object{{"containerPort": b.Port, "hostPort": b.Port}},
			"resources":    object{"requests": amounts, "limits": amounts},
			"volumeMounts": []object{{"name": "conf", "mountPath": "/apps/nginx/conf"}},
		}, object{"name": "conf", "configMap": object{"name": nginxConf}}),
	}
}

// podConfig returns the nginx.conf of the published experiment, with the
// settings that work.NGINX.Config adds to it.
func podConfig(n work.NGINX, port int) string {
	connections := max(1024, n.Connections+128)
	return fmt.Sprintf(`user nginx;
worker_processes %d;
worker_rlimit_nofile %d;
events {
    worker_connections %d;
}
http {
    access_log off;
    keepalive_requests 1000000000;
    keepalive_timeout 3600s;
    server {
        listen %d;
        gzip off;
    }
}
`, n.Workers, 2*connections, connections, port)
}

// batchManifest returns the pod of the batch work, or the pod of the spinner
// that keeps the CPUs awake. In a mode with Tenon, the pod is BE and requests
// batch resources. In a mode without Tenon it requests nothing.
func (b *pods) batchManifest(t report.ModeSpec, rate float64) []object {
	container, labels := b.transcode(rate), object{}
	if t.Spinner {
		container["command"] = []string{"sh", "-c", fmt.Sprintf(`for i in $(seq %d); do while :; do :; done & done; wait`, b.Place.Tested.Len())}
	}
	if t.Isolates() {
		labels[nodes.ClassLabel] = "BE"
		amounts := object{nodes.BatchCPU: strconv.Itoa(int(b.batch)), nodes.BatchMemory: strconv.Itoa(int(b.batchMemory()))}
		container["resources"] = object{"requests": amounts, "limits": amounts}
	}
	return []object{b.pod(batchPod, labels, container)}
}

// transcode returns the container of the batch work, without resources.
func (b *pods) transcode(rate float64) object {
	work := work.Transcode{Input: b.Input, Threads: b.threads, ReadRate: rate, Period: harness.SamplePeriod}
	if b.switches() { // the windows are short
		work.Period /= 2
	}
	script := startScript(b.processes, progressFiles)
	if b.batchPods() > 0 {
		script = yieldToShell + script
	}
	return object{"image": b.Pods.FFmpeg, "command": append([]string{"sh", "-c", script, "sh", "ffmpeg"}, work.Args()...)}
}

// yieldToShell lets the shell that reads the counters run before the batch work of its
// pod: each of many pods has a small part of the CPU. A nice value counts only within the
// cgroup of the container, so the parts of the pods stay as they are. An image without the
// program nice does without.
const yieldToShell = `command -v nice > /dev/null && set -- nice -n 19 "$@"; `

// startScript returns the script that runs its arguments as a command, n times
// at once. Each writes into a file of its own, whose path is prefix and a
// number. If a command ends, the script adds its exit status to the file,
// because the pod goes on with the others. The kernel may kill some of them
// for lack of memory.
func startScript(n int, prefix string) string {
	return fmt.Sprintf(`for i in $(seq %d); do { "$@" > %s$i; printf '\nended=%%d\n' $? >> %[2]s$i; } & done; wait`, n, prefix)
}

// batchMemory is the memory limit of the ffmpeg pod.
func (b *pods) batchMemory() unit.Bytes { return unit.Bytes(b.processes) * 512 << 20 }

// pod returns a pod with one container. It runs on the tested node and uses the
// node's network.
func (b *pods) pod(name string, labels object, container object, volumes ...object) object {
	container["name"], container["imagePullPolicy"] = name, "IfNotPresent"
	labels["app"] = name
	return object{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "labels": b.space.Labels(labels)},
		"spec": object{
			"nodeName": b.node.Name, "hostNetwork": true, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
			"tolerations": []object{{"operator": "Exists"}},
			"containers":  []object{container}, "volumes": volumes,
		},
	}
}
