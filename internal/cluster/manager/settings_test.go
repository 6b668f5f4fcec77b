package manager

import (
	"context"
	"log/slog"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tenon.sh/tenon/internal/config/absence"
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
			s := &settings{client: r, log: slog.New(slog.DiscardHandler), events: recorder, leads: func() bool { return true },
				changed: func(context.Context) {}, now: func() time.Time { return clock }}
			holds := func() string {
				c := s.cluster()
				if c == nil {
					return "unread"
				}
				if n, _ := c.Node(nil, nil); n.Policy.Overcommit.Enable {
					return "on"
				}
				return "off"
			}
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
			if again := read(); again != absence.GoneAfter || holds() != x.meanwhile {
				t.Errorf("missing: %s, asked again after %v", holds(), again)
			}
			clock = clock.Add(time.Minute)
			if again := read(); again != absence.GoneAfter-time.Minute || holds() != x.meanwhile {
				t.Errorf("after a minute: %s, asked again after %v", holds(), again)
			}
			if n := len(recorder.Events); n != 1 {
				t.Errorf("%d events; want one", n)
			}
			if x.back > 0 {
				r.data = on
				read()
			}
			clock = clock.Add(absence.GoneAfter)
			if again := read(); again != 0 || holds() != x.end {
				t.Errorf("in the end: %s, asked again after %v; want %s", holds(), again, x.end)
			}
		})
	}
}
