package manager

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tenon.sh/tenon/internal/config"
)

// settings follows the owner's ConfigMap. Every replica does: those that do not
// lead answer webhooks by it.
type settings struct {
	client  client.Reader
	name    client.ObjectKey
	log     *slog.Logger
	events  events.EventRecorder
	leads   func() bool // only one replica makes events
	changed func(context.Context)

	current atomic.Pointer[config.Cluster]
	said    string // the faults that were reported last
}

// cluster is what holds now; nil until the ConfigMap was read.
func (s *settings) cluster() *config.Cluster { return s.current.Load() }

// Reconcile reads the ConfigMap. A key with a fault keeps what it said before,
// and an event says so; a ConfigMap that is gone means defaults, by which
// nothing is promised.
func (s *settings) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var m corev1.ConfigMap
	switch err := s.client.Get(ctx, s.name, &m); {
	case apierrors.IsNotFound(err):
		s.log.Info("no such ConfigMap: defaults hold, and nothing is promised", "config", s.name)
		s.current.Store(&config.Cluster{})
		s.said = ""
		s.changed(ctx)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read ConfigMap %v: %w", s.name, err)
	}
	last := s.current.Load()
	if last == nil {
		last = &config.Cluster{}
	}
	next, faults := config.ParseConfigMapOver(*last, m.Data)
	s.current.Store(&next)
	var lines []string
	for _, f := range faults {
		lines = append(lines, f.String())
	}
	if text := strings.Join(lines, "; "); text != s.said {
		if s.said = text; text != "" {
			s.log.Warn("keys of the ConfigMap keep what they said before", "config", s.name, "faults", text)
			if s.leads() {
				s.events.Eventf(&m, nil, corev1.EventTypeWarning, "ConfigRefused", "Read", "%s", clip(text))
			}
		}
	}
	for _, notice := range next.Notices() {
		s.log.Info("ConfigMap", "config", s.name, "notice", notice)
	}
	s.changed(ctx)
	return reconcile.Result{}, nil
}

// clip keeps a text inside what an event may say (1024 bytes).
func clip(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}
