package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// scrapePeriod is the time between two scrapes of the kubelets. The kubelets
// also measure every ten seconds.
const scrapePeriod = 10 * time.Second

// A sample is one counter or gauge of a kubelet's /metrics/resource.
type sample struct {
	value float64
	at    time.Time
}

// A reading has the samples of one kubelet. The key is a metric with its
// labels, as the kubelet writes it.
type reading map[string]sample

// metricsServer serves the part of the metrics API (metrics.k8s.io/v1beta1)
// that kubectl top and autoscalers use. The data come from the kubelets.
type metricsServer struct {
	client *http.Client

	mu        sync.Mutex
	last, old map[string]reading // by node
}

// serveMetrics serves the metrics API inside the cluster until it fails.
func serveMetrics(dir string) error {
	client, err := adminClient(dir)
	if err != nil {
		return err
	}
	s := &metricsServer{client: client, last: make(map[string]reading), old: make(map[string]reading)}
	go s.scrape()
	mux := http.NewServeMux()
	const root = "/apis/metrics.k8s.io/v1beta1"
	mux.HandleFunc("GET "+root, func(w http.ResponseWriter, _ *http.Request) { answer(w, resources) })
	mux.HandleFunc("GET "+root+"/nodes", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, object{"kind": "NodeMetricsList", "apiVersion": apiVersion, "metadata": object{}, "items": s.nodes("")})
	})
	mux.HandleFunc("GET "+root+"/nodes/{name}", func(w http.ResponseWriter, r *http.Request) {
		one(w, r, s.nodes(r.PathValue("name")))
	})
	pods := func(w http.ResponseWriter, r *http.Request) {
		items, err := s.pods(r.Context(), r.PathValue("namespace"), "", r.URL.Query().Get("labelSelector"))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		answer(w, object{"kind": "PodMetricsList", "apiVersion": apiVersion, "metadata": object{}, "items": items})
	}
	mux.HandleFunc("GET "+root+"/pods", pods)
	mux.HandleFunc("GET "+root+"/namespaces/{namespace}/pods", pods)
	mux.HandleFunc("GET "+root+"/namespaces/{namespace}/pods/{name}", func(w http.ResponseWriter, r *http.Request) {
		items, err := s.pods(r.Context(), r.PathValue("namespace"), r.PathValue("name"), "")
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		one(w, r, items)
	})
	return http.ListenAndServeTLS(":4443", dir+"/pki/metrics.crt", dir+"/pki/metrics.key", mux)
}

type object map[string]any

const apiVersion = "metrics.k8s.io/v1beta1"

var resources = object{
	"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": apiVersion,
	"resources": []object{
		{"name": "nodes", "singularName": "", "namespaced": false, "kind": "NodeMetrics", "verbs": []string{"get", "list"}},
		{"name": "pods", "singularName": "", "namespaced": true, "kind": "PodMetrics", "verbs": []string{"get", "list"}},
	},
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(value); err != nil {
		log.Print(err)
	}
}

func one(w http.ResponseWriter, r *http.Request, items []object) {
	if len(items) == 1 {
		answer(w, items[0])
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusNotFound)
	_ = json.NewEncoder(w).Encode(object{"kind": "Status", "apiVersion": "v1", "status": "Failure",
		"reason": "NotFound", "code": http.StatusNotFound, "message": "no metrics yet of " + r.URL.Path})
}

// scrape reads the metrics of all kubelets in an endless loop.
func (s *metricsServer) scrape() {
	for ; ; time.Sleep(scrapePeriod) {
		var nodes struct {
			Items []struct {
				Metadata struct{ Name string }
				Status   struct {
					Addresses []struct{ Type, Address string }
				}
			}
		}
		if err := s.get(context.Background(), Server+"/api/v1/nodes", &nodes); err != nil {
			continue // the API server is not up yet, or is busy
		}
		for _, node := range nodes.Items {
			for _, a := range node.Status.Addresses {
				if a.Type != "InternalIP" {
					continue
				}
				text, err := get(context.Background(), s.client, "https://"+a.Address+":10250/metrics/resource")
				if err != nil {
					log.Printf("metrics of %s: %v", node.Metadata.Name, err)
					continue
				}
				s.mu.Lock()
				s.take(node.Metadata.Name, parseReading(string(text)))
				s.mu.Unlock()
			}
		}
	}
}

// take keeps the last two different samples of each series. It ignores equal
// samples: without a new measurement, a kubelet repeats its last sample.
func (s *metricsServer) take(node string, now reading) {
	last, old := make(reading), make(reading)
	for name, v := range now {
		before, ok := s.last[node][name]
		switch {
		case !ok:
			last[name] = v
		case v.at.After(before.at):
			last[name], old[name] = v, before
		default:
			last[name] = before
			if first, ok := s.old[node][name]; ok {
				old[name] = first
			}
		}
	}
	s.last[node], s.old[node] = last, old
}

func (s *metricsServer) get(ctx context.Context, url string, into any) error {
	text, err := get(ctx, s.client, url)
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// parseReading parses the form of the Prometheus text format that the kubelet
// writes: NAME{LABELS} VALUE MILLISECONDS.
func parseReading(text string) reading {
	all := make(reading)
	for line := range strings.Lines(text) {
		end := strings.LastIndexByte(line, '}') + 1
		if end == 0 {
			end = strings.IndexByte(line, ' ')
		}
		if end <= 0 || strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Fields(line[end:])
		if len(f) != 2 {
			continue
		}
		value, err := strconv.ParseFloat(f[0], 64)
		at, err2 := strconv.ParseInt(f[1], 10, 64)
		if err == nil && err2 == nil {
			all[line[:end]] = sample{value, time.UnixMilli(at)}
		}
	}
	return all
}

// usage computes the resource usage of one object from its last two readings.
// CPU usage is the rate of a counter. Memory usage is the value of a gauge.
func (s *metricsServer) usage(node, cpu, memory string) (object, sample, time.Duration, bool) {
	now, ok := s.last[node][cpu]
	before, ok2 := s.old[node][cpu]
	window := now.at.Sub(before.at)
	if !ok || !ok2 || window <= 0 {
		return nil, now, 0, false
	}
	nanocores := (now.value - before.value) / window.Seconds() * 1e9
	return object{
		"cpu":    fmt.Sprintf("%.0fn", max(0, nanocores)),
		"memory": fmt.Sprintf("%.0fKi", s.last[node][memory].value/1024),
	}, now, window, true
}

// nodes returns the metrics of the node with this name. An empty name means all
// nodes.
func (s *metricsServer) nodes(name string) []object {
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []object{}
	for node := range s.last {
		if name != "" && name != node {
			continue
		}
		if use, now, window, ok := s.usage(node, "node_cpu_usage_seconds_total", "node_memory_working_set_bytes"); ok {
			items = append(items, object{"metadata": object{"name": node},
				"timestamp": now.at.UTC().Format(time.RFC3339), "window": window.String(), "usage": use})
		}
	}
	return items
}

// pods returns the metrics of the pods that have the given namespace, name and
// labels. An empty argument matches all pods.
func (s *metricsServer) pods(ctx context.Context, namespace, name, labels string) ([]object, error) {
	var pods struct {
		Items []struct {
			Metadata struct{ Name, Namespace string }
			Spec     struct {
				NodeName   string
				Containers []struct{ Name string }
			}
		}
	}
	request := Server + "/api/v1/pods?labelSelector=" + strings.ReplaceAll(labels, "=", "%3D")
	if err := s.get(ctx, request, &pods); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	items := []object{}
	for _, pod := range pods.Items {
		if namespace != "" && pod.Metadata.Namespace != namespace || name != "" && pod.Metadata.Name != name {
			continue
		}
		containers := []object{}
		var at time.Time
		var window time.Duration
		for _, c := range pod.Spec.Containers {
			labels := fmt.Sprintf("{container=%q,namespace=%q,pod=%q}", c.Name, pod.Metadata.Namespace, pod.Metadata.Name)
			use, now, length, ok := s.usage(pod.Spec.NodeName, "container_cpu_usage_seconds_total"+labels, "container_memory_working_set_bytes"+labels)
			if ok {
				containers = append(containers, object{"name": c.Name, "usage": use})
				at, window = now.at, length
			}
		}
		if len(containers) > 0 {
			items = append(items, object{"metadata": object{"name": pod.Metadata.Name, "namespace": pod.Metadata.Namespace},
				"timestamp": at.UTC().Format(time.RFC3339), "window": window.String(), "containers": containers})
		}
	}
	return items, nil
}
