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
	"tenon.sh/tenon/internal/config/absence"
)

// settings watches slo-controller-config, the ConfigMap of the administrator. It
// runs on every replica, because all replicas answer webhooks with these settings.
type settings struct {
	client  client.Reader
	name    client.ObjectKey
	log     *slog.Logger
	events  events.EventRecorder
	leads   func() bool // only the leader creates events
	changed func(context.Context)
	now     func() time.Time

	current atomic.Pointer[config.Cluster]
	// said and announced are the faults in the last message of the log, and in
	// the last event.
	said, announced string
	missing         absence.Missing
}

// cluster returns the current settings, or nil before colocation-config was
// first read without a fault.
func (s *settings) cluster() *config.Cluster { return s.current.Load() }

// Reconcile reads the ConfigMap. A key with a fault keeps its last valid value, and an
// event reports the fault. If the ConfigMap is missing for absence.GoneAfter, the
// defaults apply, which disable colocation. A manager that has just started also waits
// for this time. Meanwhile the published amounts stay. They also stay while
// colocation-config has a fault and this manager has not read a valid one since
// it started: the defaults would take the batch resources from all nodes.
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
		s.log.Info("no such ConfigMap: the defaults apply, and no batch resources are published", "config", s.name)
		s.current.Store(&config.Cluster{})
		s.said, s.announced = "", ""
		s.changed(ctx)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read ConfigMap %v: %w", s.name, err)
	}
	s.missing.See(true, s.now())
	last := s.current.Load()
	first := last == nil
	if first {
		last = &config.Cluster{}
	}
	next, faults := config.ParseConfigMapOver(*last, m.Data)
	if first && next.LacksColocation(m.Data) {
		s.tellFaults(&m, faults, "colocation-config has a fault, and this manager has read no valid one yet: the batch resources of all nodes stay as they are")
		return reconcile.Result{RequeueAfter: 10 * time.Second}, nil // this replica may lead by then, and create the event
	}
	s.current.Store(&next)
	s.tellFaults(&m, faults, "invalid keys of the ConfigMap keep their last values")
	for _, notice := range next.Notices() {
		s.log.Info("ConfigMap", "config", s.name, "notice", notice)
	}
	s.changed(ctx)
	return reconcile.Result{}, nil
}

// tellFaults reports the faults of the ConfigMap and their effect, if they have
// changed.
func (s *settings) tellFaults(m *corev1.ConfigMap, faults []config.Fault, effect string) {
	var lines []string
	for _, f := range faults {
		lines = append(lines, f.String())
	}
	text := strings.Join(lines, "; ")
	if text != "" && text != s.said {
		s.log.Warn(effect, "config", s.name, "faults", text)
	}
	s.said = text
	if text != "" && text != s.announced && s.leads() {
		s.events.Eventf(m, nil, corev1.EventTypeWarning, "ConfigRefused", "Read", "%s", clip(effect+": "+text))
	}
	if text == "" || s.leads() {
		s.announced = text
	}
}

// tellMissing reports that the ConfigMap is missing and that the last settings stay in force.
func (s *settings) tellMissing() {
	text := fmt.Sprintf("there is no such ConfigMap: the last settings hold, and from %s on no batch resources are published", s.now().Add(absence.GoneAfter).UTC().Format(time.TimeOnly+" MST"))
	s.log.Warn(text, "config", s.name)
	if s.leads() {
		m := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.name.Namespace, Name: s.name.Name}}
		s.events.Eventf(&m, nil, corev1.EventTypeWarning, "ConfigMissing", "Read", "%s", text)
	}
}

// clip shortens a text to 1000 bytes, because the note of an event has at most 1024.
func clip(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}
