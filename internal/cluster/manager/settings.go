package manager

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tenon.sh/tenon/internal/config"
)

// settings tracks slo-controller-config, the administrator's ConfigMap. Every
// replica follows it, because all of them answer webhooks by these settings.
type settings struct {
	client  client.Reader
	name    client.ObjectKey
	log     *slog.Logger
	events  events.EventRecorder
	leads   func() bool // only one replica makes events
	changed func(context.Context)
	now     func() time.Time

	current atomic.Pointer[config.Cluster]
	said    string // the faults that were reported last
	missing config.Missing
}

// cluster returns the current settings; nil until the ConfigMap was read.
func (s *settings) cluster() *config.Cluster { return s.current.Load() }

// Reconcile reads the ConfigMap. A key with a fault keeps what it said before,
// and an event says so; a ConfigMap that is gone for long means defaults, by which
// nothing is promised. A manager that has just started waits for one, too: what an
// earlier one promised stays meanwhile.
func (s *settings) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var m corev1.ConfigMap
	switch err := s.client.Get(ctx, s.name, &m); {
	case apierrors.IsNotFound(err):
		first := s.missing.Since().IsZero()
		if wait := s.missing.See(false, s.now()); wait > 0 {
			if first {
				s.tellMissing()
			}
			return reconcile.Result{RequeueAfter: wait}, nil
		}
		s.log.Info("no such ConfigMap: defaults hold, and nothing is promised", "config", s.name)
		s.current.Store(&config.Cluster{})
		s.said = ""
		s.changed(ctx)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read ConfigMap %v: %w", s.name, err)
	}
	s.missing.See(true, s.now())
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

// tellMissing says that the ConfigMap is gone, and what holds.
func (s *settings) tellMissing() {
	text := fmt.Sprintf("there is no such ConfigMap: what held before holds, and from %s nothing is promised any more", s.now().Add(config.GoneAfter).UTC().Format(time.TimeOnly+" MST"))
	s.log.Warn(text, "config", s.name)
	if s.leads() {
		m := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: s.name.Name}}
		s.events.Eventf(&m, nil, corev1.EventTypeWarning, "ConfigMissing", "Read", "%s", text)
	}
}

// clip keeps a text inside what an event may say (1024 bytes).
func clip(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}
