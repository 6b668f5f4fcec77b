package telemetry

import (
	"cmp"
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
	// firstTick is the time within which the first tick must have read the node.
	firstTick = 30 * time.Second
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

// Handler serves /metrics, /livez, /healthz and /readyz. /livez is good while Alive
// returns nil, and /healthz while Works returns nil. /readyz is good if besides a
// tick has read the node, and the journal has lost no entry. A good answer of
// /healthz also names the troubles that the agent works with.
func (m *Metrics) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", &listen.Pages{
		Render: promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}), Turn: m.count,
	})
	mux.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { say(w, m.Alive(), nil) })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, m.Works(), m.health.All()) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { say(w, m.ready(), nil) })
	return mux
}

func say(w http.ResponseWriter, err error, troubles []health.Trouble) {
	w.Header().Set("Cache-Control", "no-store")
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
	for _, t := range troubles {
		fmt.Fprintf(w, "trouble (%s): %s\n", t.Kind, t.Text)
	}
}

// Alive returns an error if a restart may help: if the loop makes no ticks any
// more, or if the state of the agent is damaged, because a restore would then be
// incomplete. Before the first tick, it checks only the state.
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
		return fmt.Errorf("the last tick was %v ago, one is due every %v", since.Round(time.Millisecond), m.period)
	}
	return nil
}

// Works returns an error if the loop does not do its work: if Alive returns an
// error, if no tick could read the node lately, or if the kernel or the journal
// refuses for some time what bounds best-effort work. A restart helps against
// none of the last two.
func (m *Metrics) Works() error {
	if err := m.Alive(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch now := m.now(); {
	case m.read.IsZero() && now.Sub(m.started) > firstTick:
		return fmt.Errorf("no tick has read the node since the start %v ago: %s", now.Sub(m.started).Round(time.Second), cmp.Or(m.blind, "the first one has not ended"))
	case !m.read.IsZero() && now.Sub(m.read) > 3*m.period+lateTolerance:
		return fmt.Errorf("no tick could read the node for %v: %s", now.Sub(m.read).Round(time.Millisecond), m.blind)
	}
	for _, r := range m.last.Refused {
		if r.BE {
			return fmt.Errorf("best-effort work is not bounded as it should be: %v", r)
		}
	}
	return nil
}

func (m *Metrics) ready() error {
	if err := errors.Join(m.Works(), m.health.Err(health.Lost)); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.last.Snapshot.At.IsZero() {
		return errors.New("no tick has read the node yet")
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
	host, _, _ := net.SplitHostPort(address) //nolint:errcheck // Listen has checked it
	return listen.Serve(ctx, socket, listen.Options{
		Handler: h, Connections: maxConnections, Patience: patience, Idle: time.Minute, Name: host, Log: log,
	})
}
