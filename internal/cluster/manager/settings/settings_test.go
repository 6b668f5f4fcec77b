package settings

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tenon.sh/tenon/internal/config"
)

// oneMap is a client of a cluster with at most one ConfigMap.
type oneMap struct {
	client.Reader
	data map[string]string // nil: there is none
}

func (o *oneMap) Get(_ context.Context, key client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	if o.data == nil {
		return apierrors.NewNotFound(corev1.Resource("configmaps"), key.Name)
	}
	to.(*corev1.ConfigMap).Data = o.data
	return nil
}

// TestSettingsOutlastTheirConfigMapForAWhile deletes the ConfigMap and creates
// it again. This happens with kubectl replace --force, and when a chart moves
// its ConfigMap.
func TestSettingsOutlastTheirConfigMapForAWhile(t *testing.T) {
	on := map[string]string{"colocation-config": `{"enable":true}`}
	for _, x := range []struct {
		name  string
		first map[string]string
		back  time.Duration // time of the new creation; 0: never
		// meanwhile are the settings while the manager waits for the ConfigMap. end
		// are the settings after that.
		meanwhile, end string
	}{
		{"deleted for good", on, 0, "on", "off"},
		{"made anew", on, time.Minute, "on", "on"},
		{"none at the start", nil, 0, "unread", "off"},
		{"none yet at the start", nil, time.Minute, "unread", "on"},
	} {
		t.Run(x.name, func(t *testing.T) {
			clock, r := time.Now(), &oneMap{data: x.first}
			recorder := events.NewFakeRecorder(10)
			s := &Settings{Client: r, Log: slog.New(slog.DiscardHandler), Events: recorder, Leads: func() bool { return true },
				Changed: func(context.Context) {}, Now: func() time.Time { return clock }, Missing: NewGauge()}
			holds := func() string { return holdsOf(s) }
			read := func() time.Duration {
				t.Helper()
				result, err := s.Reconcile(t.Context(), reconcile.Request{})
				if err != nil {
					t.Fatal(err)
				}
				return result.RequeueAfter
			}
			if x.first != nil {
				read()
			}
			r.data = nil
			if again := read(); again != config.GoneAfter || holds() != x.meanwhile {
				t.Errorf("missing: %s, asked again after %v", holds(), again)
			}
			clock = clock.Add(time.Minute)
			if again := read(); again != config.GoneAfter-time.Minute || holds() != x.meanwhile {
				t.Errorf("after a minute: %s, asked again after %v", holds(), again)
			}
			if n := len(recorder.Events); n != 1 {
				t.Errorf("%d events; want one", n)
			}
			if x.back > 0 {
				r.data = on
				read()
			}
			clock = clock.Add(config.GoneAfter)
			if again := read(); again != 0 || holds() != x.end {
				t.Errorf("in the end: %s, asked again after %v; want %s", holds(), again, x.end)
			}
		})
	}
}

// holdsOf returns whether the settings enable colocation, in one word.
func holdsOf(s *Settings) string {
	c := s.Cluster()
	if c == nil {
		return "unread"
	}
	if n, _ := c.Node(nil, nil); n.Policy.Overcommit.Enable {
		return "on"
	}
	return "off"
}

// TestAManagerThatStartsWithAFaultTakesNothingAway starts a manager while
// colocation-config has a fault. It does not know the last valid content, so
// the amounts of the nodes must stay. A manager that has read a valid content
// keeps it.
func TestAManagerThatStartsWithAFaultTakesNothingAway(t *testing.T) {
	colocation := func(text string) map[string]string { return map[string]string{"colocation-config": text} }
	for _, x := range []struct {
		name string
		data []map[string]string // the content of the ConfigMap, one after the other
		want string              // the settings after each content
	}{
		{"a fault", []map[string]string{colocation(`{"enable":"x"}`)}, "unread"},
		{"no JSON", []map[string]string{colocation("enable: true")}, "unread"},
		{"a fault that is corrected", []map[string]string{colocation(`{"enable":"x"}`), colocation(`{"enable":true}`)}, "unread on"},
		{"a fault that is disabled", []map[string]string{colocation(`{"enable":"x"}`), colocation(`{"enable":false}`)}, "unread off"},
		{"a fault that is removed", []map[string]string{colocation(`{"enable":"x"}`), {}}, "unread off"},
		{"a fault after a valid content", []map[string]string{colocation(`{"enable":true}`), colocation(`{"enable":"x"}`)}, "on on"},
		{"a fault after none", []map[string]string{{}, colocation(`{"enable":"x"}`)}, "off off"},
		{"a fault in another key", []map[string]string{{"resource-qos-config": "x", "colocation-config": `{"enable":true}`}}, "on"},
	} {
		t.Run(x.name, func(t *testing.T) {
			r, recorder, leads, changes := &oneMap{}, events.NewFakeRecorder(10), false, 0
			s := &Settings{Client: r, Log: slog.New(slog.DiscardHandler), Events: recorder, Leads: func() bool { return leads },
				Changed: func(context.Context) { changes++ }, Now: time.Now, Missing: NewGauge()}
			var held []string
			read := 0
			for _, r.data = range x.data {
				result, err := s.Reconcile(t.Context(), reconcile.Request{})
				held = append(held, holdsOf(s))
				unread := s.Cluster() == nil
				if !unread {
					read++
				}
				if err != nil || unread != (result.RequeueAfter > 0) || changes != read {
					t.Errorf("%v: asked again after %v, %d changes: %v", held, result.RequeueAfter, changes, err)
				}
			}
			if got := strings.Join(held, " "); got != x.want {
				t.Errorf("%s, want %s", got, x.want)
			}
			// A replica that begins to lead creates the event of its fault, once.
			leads = true
			for range 2 {
				if _, err := s.Reconcile(t.Context(), reconcile.Request{}); err != nil {
					t.Error(err)
				}
			}
			if faults := s.said != ""; len(recorder.Events) != map[bool]int{true: 1}[faults] {
				t.Errorf("%d events; faults %v", len(recorder.Events), faults)
			}
		})
	}
}
