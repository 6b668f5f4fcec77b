package main

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"k8s.io/client-go/rest"

	"tenon.sh/tenon/internal/agent/cluster"
	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/cmdline"
)

// TestTenondLeavesOnlyWhereItIsTakenAway checks that tenond restores the knobs
// only if it is uninstalled. After any other stop, the next tenond continues
// its work.
func TestTenondLeavesOnlyWhereItIsTakenAway(t *testing.T) {
	const (
		set  = "/apis/apps/v1/namespaces/tenon-system/daemonsets/tenond"
		node = "/api/v1/nodes/n1"
		home = "/api/v1/namespaces/tenon-system"

		linux   = `{"metadata":{"name":"tenond"},"spec":{"template":{"spec":{"nodeSelector":{"os":"linux"}}}}}`
		anyNode = `{"metadata":{"name":"tenond"}}`
		zoned   = `{"metadata":{"name":"tenond"},"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"zone","operator":"NotIn","values":["edge"]}]}]}}}}}}}`
		prefers = `{"metadata":{"name":"tenond"},"spec":{"template":{"spec":{"affinity":{"nodeAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchExpressions":[{"key":"zone","operator":"NotIn","values":["edge"]}]}}]}}}}}}`
		bears   = `{"metadata":{"name":"tenond"},"spec":{"template":{"spec":{"tolerations":[{"operator":"Exists"}]}}}}`
		edge    = `{"metadata":{"name":"n1","labels":{"zone":"edge"}}}`
		going   = `{"metadata":{"name":"tenond","deletionTimestamp":"2026-11-22T12:00:00Z"}}`
	)
	denied := func(code int) string { return fmt.Sprint(code) }
	tainted := func(key, effect string) string {
		return fmt.Sprintf(`{"metadata":{"name":"n1"},"spec":{"taints":[{"key":%q,"effect":%q}]}}`, key, effect)
	}
	for _, x := range []struct {
		name          string
		before, after map[string]string // answers of the API server by path: a text or a status code; without one, node and home stay
		leaves        bool
	}{
		{"it stays", map[string]string{set: linux, home: anyNode, node: `{"metadata":{"labels":{"os":"linux"}}}`}, nil, false},
		{"it stays on every node", map[string]string{set: anyNode, home: anyNode}, nil, false},
		{"it stays, and an older release may not ask for the namespace", map[string]string{set: anyNode, home: denied(403)}, nil, false},
		{"the namespace ends, pods first", map[string]string{set: anyNode}, map[string]string{home: going}, true},
		{"it is being deleted", map[string]string{set: anyNode}, map[string]string{set: going}, true},
		{"it is gone", map[string]string{set: anyNode}, map[string]string{set: denied(404)}, true},
		{"the node has lost its label", map[string]string{set: linux, node: `{"metadata":{"labels":{"os":"linux"}}}`}, map[string]string{node: `{"metadata":{}}`}, true},
		{"the node has another value", map[string]string{set: linux, node: `{"metadata":{"labels":{"os":"linux"}}}`}, map[string]string{node: `{"metadata":{"labels":{"os":"x"}}}`}, true},
		{"the node is in a zone that the affinity excludes", map[string]string{set: zoned}, map[string]string{node: edge}, true},
		{"the affinity now excludes the node", map[string]string{set: anyNode, node: edge}, map[string]string{set: zoned}, true},
		{"the affinity selects the node", map[string]string{set: zoned}, nil, false},
		{"a preference excludes nothing", map[string]string{set: prefers, node: edge}, nil, false},
		{"a taint ends it", map[string]string{set: anyNode}, map[string]string{node: tainted("maintenance", "NoExecute")}, true},
		{"it tolerates the taint", map[string]string{set: bears}, map[string]string{node: tainted("maintenance", "NoExecute")}, false},
		{"every DaemonSet tolerates the taint", map[string]string{set: anyNode}, map[string]string{node: tainted("node.kubernetes.io/unreachable", "NoExecute")}, false},
		{"the taint is for new pods", map[string]string{set: anyNode}, map[string]string{node: tainted("maintenance", "NoSchedule")}, false},
		{"the node cannot be read", map[string]string{set: anyNode}, map[string]string{node: denied(503)}, false},
		{"no answer", map[string]string{set: anyNode}, map[string]string{set: denied(503), home: denied(503)}, false},
		{"all rights are gone", map[string]string{set: anyNode}, map[string]string{set: denied(403), home: denied(403)}, true},
		{"the service account is unknown", map[string]string{set: anyNode}, map[string]string{set: denied(401), home: denied(401)}, true},
		{"the namespace ends", map[string]string{set: anyNode}, map[string]string{set: denied(403), home: going}, true},
		{"one right is gone, and the namespace stays", map[string]string{set: anyNode}, map[string]string{set: denied(403), home: anyNode}, false},
		{"a permission is gone, and the namespace cannot be read", map[string]string{set: anyNode}, map[string]string{set: denied(403), home: denied(503)}, false},
		{"it was never allowed to ask", map[string]string{set: denied(403), home: denied(403)}, nil, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			var mu sync.Mutex
			before := map[string]string{node: `{"metadata":{"name":"n1"}}`, home: anyNode}
			maps.Copy(before, x.before)
			now := before
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				mu.Lock()
				text, is := now[r.URL.Path]
				mu.Unlock()
				code := http.StatusNotFound
				if is {
					if n, _ := fmt.Sscan(text, &code); n == 0 {
						w.Header().Set("Content-Type", "application/json")
						fmt.Fprint(w, text)
						return
					}
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, code,
					map[int]string{401: "Unauthorized", 403: "Forbidden", 404: "NotFound", 503: "ServiceUnavailable"}[code])
			}))
			defer server.Close()
			api, err := apiserver.Open(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			f := clusterFlags{daemonSet: cmdline.ObjectName{Namespace: "tenon-system", Name: "tenond"}}
			s := f.stayOf(&cluster.Kubernetes{Node: "n1", API: api}, slog.New(slog.DiscardHandler))
			_, err = s.ask(t.Context())
			if (err == nil) != s.known.Load() {
				t.Errorf("known: %v, %v", s.known.Load(), err)
			}
			mu.Lock()
			now = maps.Clone(before)
			maps.Copy(now, x.after)
			mu.Unlock()
			if got := s.ends(); got != x.leaves {
				t.Errorf("it leaves: %v, want %v", got, x.leaves)
			}
		})
	}
}
