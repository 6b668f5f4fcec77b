package run

import (
	"fmt"
	"strconv"

	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/nodes"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/model/unit"
)

// runLabel is a label of the objects of a run. Its value is the number of the run.
const runLabel = "tenon.sh/lab-run"

// The names of the published objects.
const (
	serviceName    = "nginx-service-nodeport"
	configMapName  = "nginx-configmap"
	deploymentName = "nginx-deployment"
	jobName        = "cal-pi"
)

// service returns the published Service and ConfigMap. A server has one worker
// for each CPU of its limit. In the published manifests, both numbers are 4.
func (b *pods) service() []kubectl.Object {
	labels := b.space.Labels(nil)
	return []kubectl.Object{
		{
			"apiVersion": "v1", "kind": "Service", "metadata": kubectl.Object{"name": serviceName, "labels": labels},
			"spec": kubectl.Object{
				"type": "NodePort", "selector": b.space.Labels(kubectl.Object{"app": "nginx"}), // and no pod of others
				"ports": []kubectl.Object{{"name": "http", "port": 8000, "protocol": "TCP", "targetPort": 80, "nodePort": b.Pods.NodePort}},
			},
		},
		{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": kubectl.Object{"name": configMapName, "labels": labels},
			"data": kubectl.Object{"nginx_conf": fmt.Sprintf(serverConfig, b.serverLimit)},
		},
	}
}

// serverConfig is the published nginx.conf. Its parameter is the number of
// workers.
const serverConfig = `user  nginx;
worker_processes  %d;
error_log  /var/log/nginx/error.log warn;
pid        /var/run/nginx.pid;
events {
    worker_connections  65535;
}
http {
    include       /etc/nginx/mime.types;
    default_type  application/octet-stream;
    log_format  main  '$remote_addr - $remote_user [$time_local] "$request" '
                  '$status $body_bytes_sent "$http_referer" '
                  '"$http_user_agent" "$http_x_forwarded_for"';
    access_log  /var/log/nginx/access.log  main;
    sendfile        on;
    keepalive_timeout  65;
    include /etc/nginx/conf.d/*.conf;
}
`

// manifest returns the objects of a run: the published Deployment or Pod, with the
// annotations, labels and limits of a mode.
func (b *pods) manifest(c cell, index int) []kubectl.Object {
	number := strconv.Itoa(index)
	labels, annotations := kubectl.Object{runLabel: number}, kubectl.Object{}
	switch c.mode {
	case pinning.Pinned: // without a CPU limit there is no quota, and the label gives own CPUs by the request
		labels[nodes.ClassLabel] = "LSR"
	case pinning.PinnedQuota:
		annotations["cpuset-scheduler"] = "true"
	case pinning.StaticBurst:
		annotations["cpuset-scheduler"], annotations["cpu-policy"] = "true", "static-burst"
	}
	if c.part == pinning.Pi {
		return []kubectl.Object{{
			"apiVersion": "v1", "kind": "Pod", "metadata": kubectl.Object{"name": jobName, "labels": b.space.Labels(labels), "annotations": annotations},
			"spec": b.pod(kubectl.Object{
				"name": jobName, "image": b.Pods.Pi, "resources": b.resources(c),
				"env": []kubectl.Object{{"name": "limit", "value": strconv.Itoa(b.Digits)}, {"name": "threadNum", "value": strconv.Itoa(b.Threads)}},
			}),
		}}
	}
	labels["app"] = "nginx"
	spec := b.pod(kubectl.Object{
		"name": "nginx", "image": b.Pods.NGINX, "resources": b.resources(c), "ports": []kubectl.Object{{"containerPort": 80}},
		"volumeMounts": []kubectl.Object{{"name": "nginx", "mountPath": "/etc/nginx/nginx.conf", "subPath": "nginx.conf"}},
	})
	delete(spec, "restartPolicy") // a Deployment restarts its pods
	spec["volumes"] = []kubectl.Object{{"name": "nginx", "configMap": kubectl.Object{
		"name": configMapName, "items": []kubectl.Object{{"key": "nginx_conf", "path": "nginx.conf"}},
	}}}
	return []kubectl.Object{{
		"apiVersion": "apps/v1", "kind": "Deployment",
		"metadata": kubectl.Object{"name": deploymentName, "labels": b.space.Labels(kubectl.Object{"app": "nginx", runLabel: number})},
		"spec": kubectl.Object{
			"replicas": replicas, "selector": kubectl.Object{"matchLabels": kubectl.Object{"app": "nginx", runLabel: number}},
			"template": kubectl.Object{"metadata": kubectl.Object{"labels": b.space.Labels(labels), "annotations": annotations}, "spec": spec},
		},
	}}
}

// pod returns the specification of a pod with one container on the tested node.
func (b *pods) pod(container kubectl.Object) kubectl.Object {
	container["imagePullPolicy"] = "IfNotPresent"
	spec := kubectl.Object{
		"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
		"containers": []kubectl.Object{container},
		"affinity":   nodes.Affinity(b.node.Name),
	}
	if b.Pods.Node != "" {
		spec["tolerations"] = []kubectl.Object{{"operator": "Exists"}}
	}
	return spec
}

// requests returns the requests of a pod of a part.
func (b *pods) requests(part string) nodes.Amounts {
	if part == pinning.NGINX {
		return nodes.Amounts{CPU: unit.CPUs(b.serverLimit), Memory: b.memory}
	}
	return nodes.Amounts{CPU: unit.CPUs(b.limit)} // the published job has no amount of memory
}

// resources returns the requests and limits of a container.
func (b *pods) resources(c cell) kubectl.Object {
	need := b.requests(c.part)
	requests, limits := kubectl.Object{"cpu": need.CPU.String()}, kubectl.Object{"cpu": need.CPU.String()}
	if need.Memory > 0 {
		requests["memory"], limits["memory"] = strconv.FormatInt(int64(need.Memory), 10), strconv.FormatInt(int64(need.Memory), 10)
	}
	if c.mode == pinning.SharedFree || c.mode == pinning.Pinned {
		delete(limits, "cpu")
	}
	return kubectl.Object{"requests": requests, "limits": limits}
}
