package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	// DefaultAddress is where the metrics are, only on loopback, because the
	// metrics contain names of workloads.
	DefaultAddress = "127.0.0.1:9847"
	// late is how much later than due a tick may be before the loop counts
	// as dead, beside three periods.
	late = 5 * time.Second
	// again is how long after a failure the address is tried again.
	again = 30 * time.Second
	// patience is how long a client may take.
	patience = 10 * time.Second
)

// Handler serves /metrics, /healthz (the loop turns) and /readyz (it has
// turned).
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: 4,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, m.Alive()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { say(w, m.ready()) })
	return mux
}

func say(w http.ResponseWriter, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

// Alive is nil if the loop turns. Before the first tick it is alive.
func (m *Metrics) Alive() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at.IsZero() {
		return nil
	}
	if since := m.now().Sub(m.at); since > 3*m.period+late {
		return fmt.Errorf("the last turn was %v ago, one is due every %v", since.Round(time.Millisecond), m.period)
	}
	return nil
}

func (m *Metrics) ready() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.Snapshot.At.IsZero() {
		return errors.New("no turn has read the node yet")
	}
	return nil
}

// Serve serves the handler at address until ctx ends. An address that is not
// to be had is logged once and tried again: the agent goes on without.
func Serve(ctx context.Context, address string, h http.Handler, log *slog.Logger) {
	complained := false
	for {
		err := serve(ctx, address, h, log)
		if ctx.Err() != nil {
			return
		}
		if !complained {
			log.Error("no metrics: the address cannot be served; it is tried again", "address", address, "every", again, "error", err)
			complained = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(again):
		}
	}
}

func serve(ctx context.Context, address string, h http.Handler, log *slog.Logger) error {
	socket, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{
		Handler: h, ReadTimeout: patience, WriteTimeout: patience, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	return server.Serve(socket)
}
