package inprocess

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"tenon.sh/tenon/api/v1alpha1"
)

// Reports serves the reports of the nodes over HTTP on loopback, like an API
// server with a custom resource.
type Reports struct {
	mu      sync.Mutex
	version int
	all     map[string]v1alpha1.NodeReport
	changed chan struct{} // closed at the next change
	log     []v1alpha1.NodeReport
	config  *rest.Config
}

// Serve makes a Reports and serves it until ctx ends.
func Serve(ctx context.Context, reports []v1alpha1.NodeReport) (*Reports, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &Reports{all: map[string]v1alpha1.NodeReport{}, changed: make(chan struct{}), config: &rest.Config{Host: "http://" + listener.Addr().String()}}
	for i := range reports {
		r.all[reports[i].Name] = reports[i]
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(r.answer)}
	go func() { _ = server.Serve(listener) }() // it ends when the server is closed
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return r, nil
}

// Put stores the report of a node.
func (r *Reports) Put(report v1alpha1.NodeReport) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	report.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport"}
	report.ResourceVersion = strconv.Itoa(r.version)
	r.all[report.Name] = report
	r.log = append(r.log, report)
	close(r.changed)
	r.changed = make(chan struct{})
}

// snapshot returns all reports, and the number of changes so far.
func (r *Reports) snapshot() ([]v1alpha1.NodeReport, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []v1alpha1.NodeReport
	for _, report := range r.all {
		all = append(all, report)
	}
	return all, len(r.log)
}

func (r *Reports) answer(w http.ResponseWriter, request *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	all, from := r.snapshot()
	version := strconv.Itoa(from)
	if request.URL.Query().Get("watch") == "" {
		_ = json.NewEncoder(w).Encode(v1alpha1.NodeReportList{
			TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReportList"},
			ListMeta: metav1.ListMeta{ResourceVersion: version}, Items: all,
		}) // a client asks again if its connection broke
		return
	}
	send := func(kind string, o any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": o})
	}
	if request.URL.Query().Get("sendInitialEvents") == "true" {
		for i := range all {
			send("ADDED", &all[i])
		}
		send("BOOKMARK", &v1alpha1.NodeReport{
			TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport"},
			ObjectMeta: metav1.ObjectMeta{ResourceVersion: version, Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
		})
	} else if n, err := strconv.Atoi(request.URL.Query().Get("resourceVersion")); err == nil {
		from = n
	}
	for {
		w.(http.Flusher).Flush()
		r.mu.Lock()
		next, changed := r.log[min(from, len(r.log)):], r.changed
		from += len(next)
		r.mu.Unlock()
		for i := range next {
			send("MODIFIED", &next[i])
		}
		if len(next) > 0 {
			continue
		}
		select {
		case <-request.Context().Done():
			return
		case <-changed:
		}
	}
}
