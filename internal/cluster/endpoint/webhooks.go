package endpoint

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"tenon.sh/tenon/internal/listen"
)

const (
	// maxReview is the maximum length of a request of the API server, in bytes:
	// controller-runtime reads no more.
	maxReview = 7 << 20
	// endsWithin is the time for which the requests may go on when the manager ends.
	endsWithin = time.Minute
)

// Webhooks is a webhook.Server. Every pod may be able to connect to it.
type Webhooks struct {
	webhook.Server
	address string
	config  *tls.Config
	log     *slog.Logger
	started atomic.Bool
}

// NewWebhooks returns a server of webhooks on an address. The certificate function
// returns its certificate.
func NewWebhooks(host string, port int, certificate func(*tls.ClientHelloInfo) (*tls.Certificate, error), log *slog.Logger) *Webhooks {
	return &Webhooks{
		Server: webhook.NewServer(webhook.Options{Host: host, Port: port}), address: net.JoinHostPort(host, strconv.Itoa(port)), log: log,
		config: &tls.Config{NextProtos: []string{"h2"}, GetCertificate: certificate, MinVersion: tls.VersionTLS13},
	}
}

// Start serves until ctx ends, and then finishes the present requests.
func (s *Webhooks) Start(ctx context.Context) error {
	socket, err := new(net.ListenConfig).Listen(ctx, "tcp", s.address)
	if err != nil {
		return fmt.Errorf("serve the webhooks: %w", err)
	}
	server, listener := listen.New(socket, listen.Options{
		Handler: s.WebhookMux(), Connections: maxConnections, Patience: patience, Idle: idle, Body: maxReview, TLS: s.config, Log: s.log,
	})
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), endsWithin)
		defer cancel()
		if err := server.Shutdown(last); err != nil {
			s.log.Warn("requests of webhooks were cut off", "error", err)
		}
	})
	defer stop()
	s.started.Store(true)
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the webhooks: %w", err)
	}
	<-ended
	return nil
}

// StartedChecker returns a check that connects to the server.
func (s *Webhooks) StartedChecker() healthz.Checker {
	return func(r *http.Request) error {
		if !s.started.Load() {
			return errors.New("the server of webhooks has not started yet")
		}
		// The check asks whether the server answers, not who it is.
		to := tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{InsecureSkipVerify: true}}
		c, err := to.DialContext(r.Context(), "tcp", s.address)
		if err != nil {
			return fmt.Errorf("connect to the server of webhooks: %w", err)
		}
		return c.Close()
	}
}
