// Package endpoint serves the metrics, the health checks and the webhooks of
// tenon-manager. It takes the place of the servers of controller-runtime, which do
// not bound what their clients hold.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"

	"tenon.sh/tenon/internal/listen"
)

const (
	// maxConnections is the maximum number of connections of one server at a time.
	maxConnections = 64
	// patience is the time that a client may take to send a request or to read the
	// answer. idle is the time for which a connection may wait for a request.
	patience = 10 * time.Second
	idle     = 90 * time.Second
)

// Add adds the servers of the metrics and of the health checks to a manager. An
// empty address disables a server. Each check in ready has a page of its own below
// /readyz.
func Add(m manager.Manager, metrics, health string, ready map[string]healthz.Checker, log *slog.Logger) error {
	if metrics != "" {
		mux := http.NewServeMux()
		mux.Handle("/metrics", &listen.Pages{Render: promhttp.HandlerFor(ctrlmetrics.Registry, promhttp.HandlerOpts{})})
		if err := addServer(m, "metrics", metrics, mux, log); err != nil {
			return err
		}
	}
	if health == "" {
		return nil
	}
	mux := http.NewServeMux()
	for path, checks := range map[string]map[string]healthz.Checker{"/healthz": {"ping": healthz.Ping}, "/readyz": ready} {
		handler := http.StripPrefix(path, &healthz.Handler{Checks: checks})
		mux.Handle(path, handler)
		mux.Handle(path+"/", handler)
	}
	return addServer(m, "health probe", health, mux, log)
}

func addServer(m manager.Manager, name, address string, handler http.Handler, log *slog.Logger) error {
	socket, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("serve the %s: %w", name, err)
	}
	server, listener := listen.New(socket, listen.Options{
		Handler: handler, Connections: maxConnections, Patience: patience, Idle: idle, Log: log,
	})
	within := patience
	return m.Add(&manager.Server{Name: name, Server: server, Listener: listener, ShutdownTimeout: &within})
}

// CachesReady returns a readiness check that fails until the caches are complete. A manager waits
// for the API server without a limit, and the check shows whether it still waits.
func CachesReady(c cache.Cache) healthz.Checker {
	return func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if !c.WaitForCacheSync(ctx) {
			return errors.New("the cache is not complete: the API server does not answer, a permission is missing, or a CRD is missing (crds/ of the chart); see the log")
		}
		return nil
	}
}
