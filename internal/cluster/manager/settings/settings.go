// Package settings follows the ConfigMap with the settings of the manager.
package settings

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tenon.sh/tenon/internal/config"
)

// Settings follows slo-controller-config, the ConfigMap of the administrator. It
// runs on every replica, because all replicas answer webhooks with these settings.
type Settings struct {
	Client  client.Reader
	Name    client.ObjectKey
	Log     *slog.Logger
	Events  events.EventRecorder
	Leads   func() bool // only the leader creates events
	Changed func(context.Context)
	Now     func() time.Time
	// Missing is 1 while the ConfigMap does not exist.
	Missing prometheus.Gauge

	current atomic.Pointer[config.Cluster]
	// said and announced are the faults in the last message of the log, and in
	// the last event.
	said, announced string
	missing         config.Missing
}

// NewGauge returns the metric of Settings.
func NewGauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tenon_manager_config_missing", Help: "1 while the ConfigMap with the strategies does not exist: five minutes later, nodes and batch resources are as without it.",
	})
}

// Cluster returns the current settings, or nil before colocation-config was
// first read without a fault.
func (s *Settings) Cluster() *config.Cluster { return s.current.Load() }

// Reconcile reads the ConfigMap. A key with a fault keeps its last valid value, and an
// event reports the fault. If the ConfigMap is missing for absence.GoneAfter, the
// defaults apply, which disable colocation. A manager that has just started also waits
// for this time. Meanwhile the published amounts stay. They also stay while
// colocation-config has a fault and this manager has not read a valid one since
// it started: the defaults would take the batch resources from all nodes.
func (s *Settings) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var m corev1.ConfigMap
	switch err := s.Client.Get(ctx, s.Name, &m); {
	case apierrors.IsNotFound(err):
		s.Missing.Set(1)
		first := s.missing.Since().IsZero()
		if wait := s.missing.See(false, s.Now()); wait > 0 {
			if first {
				s.tellMissing()
			}
			return reconcile.Result{RequeueAfter: wait}, nil
		}
		s.Log.Warn("no such ConfigMap: the defaults apply, and no batch resources are published", "config", s.Name)
		s.current.Store(&config.Cluster{})
		s.said, s.announced = "", ""
		s.Changed(ctx)
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("read ConfigMap %v: %w", s.Name, err)
	}
	s.missing.See(true, s.Now())
	s.Missing.Set(0)
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
		s.Log.Info("ConfigMap", "config", s.Name, "notice", notice)
	}
	s.Changed(ctx)
	return reconcile.Result{}, nil
}

// tellFaults reports the faults of the ConfigMap and their effect, if they have
// changed.
func (s *Settings) tellFaults(m *corev1.ConfigMap, faults []config.Fault, effect string) {
	var lines []string
	for _, f := range faults {
		lines = append(lines, f.String())
	}
	text := strings.Join(lines, "; ")
	if text != "" && text != s.said {
		s.Log.Warn(effect, "config", s.Name, "faults", text)
	}
	s.said = text
	if text != "" && text != s.announced && s.Leads() {
		s.Events.Eventf(m, nil, corev1.EventTypeWarning, "ConfigRefused", "Read", "%s", Clip(effect+": "+text))
	}
	if text == "" || s.Leads() {
		s.announced = text
	}
}

// tellMissing reports that the ConfigMap is missing and that the last settings stay in force.
func (s *Settings) tellMissing() {
	text := fmt.Sprintf("there is no such ConfigMap: the last settings hold, and from %s on no batch resources are published", s.Now().Add(config.GoneAfter).UTC().Format(time.TimeOnly+" MST"))
	s.Log.Warn(text, "config", s.Name)
	if s.Leads() {
		m := corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name.Namespace, Name: s.Name.Name}}
		s.Events.Eventf(&m, nil, corev1.EventTypeWarning, "ConfigMissing", "Read", "%s", text)
	}
}

// Clip shortens a text to 1000 bytes, because the note of an event has at most 1024.
func Clip(s string) string {
	const most = 1000
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + " …"
}
