package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"tenon.sh/tenon/api/v1alpha1"
)

// serve serves the reports of the nodes over HTTP on loopback, as the API server
// serves a custom resource, and returns how to reach them. The reports do not
// change.
func serve(ctx context.Context, reports []v1alpha1.NodeReport) (*rest.Config, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Query().Get("watch") == "" {
			_ = json.NewEncoder(w).Encode(v1alpha1.NodeReportList{
				TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReportList"},
				ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: reports,
			}) // a client that is gone asks again
			return
		}
		if r.URL.Query().Get("sendInitialEvents") == "true" {
			stream(w, reports)
		}
		w.(http.Flusher).Flush()
		select {
		case <-r.Context().Done():
		case <-ctx.Done():
		}
	})}
	go func() { _ = server.Serve(listener) }() // it ends when the server is closed
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return &rest.Config{Host: "http://" + listener.Addr().String()}, nil
}

// stream sends the reports as the first events of a watch.
func stream(w http.ResponseWriter, reports []v1alpha1.NodeReport) {
	send := func(kind string, o any) {
		_ = json.NewEncoder(w).Encode(map[string]any{"type": kind, "object": o})
	}
	for i := range reports {
		send("ADDED", &reports[i])
	}
	send("BOOKMARK", &v1alpha1.NodeReport{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport"},
		ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1", Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}},
	})
}
