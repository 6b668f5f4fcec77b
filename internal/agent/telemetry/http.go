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

	"tenon.sh/tenon/internal/agent/health"
	"tenon.sh/tenon/internal/listen"
)

const (
	// DefaultAddress is the default address of the metrics. It is on loopback,
	// because the metrics contain the names of workloads.
	DefaultAddress = "127.0.0.1:9847"
	// Alive treats the loop as dead if the last tick is older than three periods
	// plus lateTolerance.
	lateTolerance = 5 * time.Second
	// listenInterval is the time between two attempts to listen on the address.
	listenInterval = 30 * time.Second
	// patience is the time that a client may take to send a request or to read
	// the answer.
	patience = 10 * time.Second
	// maxConnections is the maximum number of connections at a time. Other users of
	// the machine may connect, and each connection takes a descriptor and memory
	// from the loop.
	maxConnections = 64
)

// Handler serves /metrics, /healthz and /readyz. /healthz is good while Alive
// returns nil. /readyz is good if a tick has read the node, the state of the
// agent is not damaged, and the journal has lost no entry.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", &listen.Pages{
		Render: promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}), Turn: m.turns,
	})
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

// Alive returns an error if the loop makes no ticks any more. It also returns
// an error if the state of the agent is damaged, because a restore would then
// be incomplete. Before the first tick, it checks only the state.
func (m *Metrics) Alive() error {
	if err := m.health.Err(health.State); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.at.IsZero() {
		return nil
	}
	if since := m.now().Sub(m.at); since > 3*m.period+lateTolerance {
		return fmt.Errorf("the last turn was %v ago, one is due every %v", since.Round(time.Millisecond), m.period)
	}
	return nil
}

func (m *Metrics) ready() error {
	if err := errors.Join(m.health.Err(health.State), m.health.Err(health.Lost)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.Snapshot.At.IsZero() {
		return errors.New("no turn has read the node yet")
	}
	return nil
}

// Serve serves the handler at address until ctx ends. If it cannot listen
// there, it logs one error and tries again later. Meanwhile the agent runs
// without metrics.
func Serve(ctx context.Context, address string, h http.Handler, log *slog.Logger) {
	complained := false
	for {
		err := serve(ctx, address, h, log)
		if ctx.Err() != nil {
			return
		}
		if !complained {
			log.Error("no metrics: cannot listen on the address, trying again", "address", address, "every", listenInterval, "error", err)
			complained = true
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(listenInterval):
		}
	}
}

func serve(ctx context.Context, address string, h http.Handler, log *slog.Logger) error {
	socket, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return err
	}
	host, _, _ := net.SplitHostPort(address) // Listen has checked it
	return listen.Serve(ctx, socket, listen.Options{
		Handler: h, Connections: maxConnections, Patience: patience, Idle: time.Minute, Name: host, Log: log,
	})
}
