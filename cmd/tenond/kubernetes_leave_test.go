package main

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"tenon.sh/tenon/internal/agent/cluster"
	"tenon.sh/tenon/internal/cluster/apiserver"
)

// TestTenondReportsItsEnd sends the last report to an API server, and then to
// one that never answers.
func TestTenondReportsItsEnd(t *testing.T) {
	sent, away := "", false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if away {
			<-r.Context().Done()
			return
		}
		sent = r.Method + " " + r.URL.Path + " " + string(body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte("{}"))
	}))
	defer server.Close()
	api, err := apiserver.Open(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	k := &cluster.Kubernetes{Node: "n1", API: api}
	reportLeave(k, time.Minute, slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.HasPrefix(sent, "PATCH /apis/tenon.sh/v1alpha1/nodereports/n1/status ") || !strings.Contains(sent, `"AgentRuns"`) || log.Len() > 0 {
		t.Errorf("%s\n%s", sent, &log)
	}
	away = true
	reportLeave(k, 50*time.Millisecond, slog.New(slog.NewTextHandler(&log, nil)))
	if !strings.Contains(log.String(), "the report of this node does not say that tenond has left") {
		t.Errorf("%s", &log)
	}
}
