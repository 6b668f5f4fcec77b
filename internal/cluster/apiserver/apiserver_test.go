package apiserver

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/cluster/apiserver/apitest"
)

func open(t *testing.T, s *apitest.Server) *Client {
	t.Helper()
	c, err := Open(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func run[T object](t *testing.T, w *Watch[T]) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() { defer close(over); w.Run(ctx) }()
	t.Cleanup(func() { stop(); <-over })
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("not within 30 s: " + what)
		}
	}
}

func node(labels, annotations map[string]string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1", UID: "u", Labels: labels, Annotations: annotations}}
}

func config(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "koordinator-system", Name: "slo-controller-config"}, Data: data}
}

func TestOneConfigMapIsWatchedAndNoOther(t *testing.T) {
	s := apitest.New(t)
	var changes atomic.Int32
	w := open(t, s).ConfigMap("koordinator-system", "slo-controller-config", func() { changes.Add(1) })
	run(t, w)
	data := func() string {
		all, known := w.Objects()
		if !known || len(all) == 0 {
			return ""
		}
		return all[0].Data["a"]
	}
	eventually(t, "an empty list", func() bool { all, known := w.Objects(); return known && len(all) == 0 })
	other := config(map[string]string{"a": "wrong"})
	other.Name = "another"
	s.Put(other)
	s.Put(config(map[string]string{"a": "1"}))
	eventually(t, "the ConfigMap", func() bool { return data() == "1" })
	s.Put(config(map[string]string{"a": "2"}))
	eventually(t, "its change", func() bool { return data() == "2" })
	before := changes.Load()
	same := config(map[string]string{"a": "2"})
	same.Labels = map[string]string{"x": "y"}
	s.Put(same)
	s.Put(config(map[string]string{"a": "3"}))
	eventually(t, "the next change", func() bool { return data() == "3" })
	if n := changes.Load() - before; n != 1 {
		t.Errorf("%d changes were reported, want 1", n)
	}
	s.Remove(config(nil))
	eventually(t, "its end", func() bool { all, known := w.Objects(); return known && len(all) == 0 })
}

func TestTheStatusOfANodeIsNoNews(t *testing.T) {
	s := apitest.New(t)
	s.Put(node(map[string]string{"pool": "a"}, nil))
	var changes atomic.Int32
	w := open(t, s).Node("node-1", func() { changes.Add(1) })
	run(t, w)
	eventually(t, "the node", func() bool { return changes.Load() == 1 })
	beat := node(map[string]string{"pool": "a"}, nil)
	beat.Status.Conditions = []corev1.NodeCondition{{Type: "Ready", Status: "True"}}
	s.Put(beat)
	s.Put(node(map[string]string{"pool": "b"}, nil))
	eventually(t, "the label", func() bool { all, _ := w.Objects(); return len(all) == 1 && all[0].Labels["pool"] == "b" })
	if n := changes.Load(); n != 2 {
		t.Errorf("%d changes", n)
	}
}

func TestWhatIsKnownOutlastsTheServer(t *testing.T) {
	s := apitest.New(t)
	s.Put(config(map[string]string{"a": "1"}))
	w := open(t, s).ConfigMap("koordinator-system", "slo-controller-config", func() {})
	run(t, w)
	eventually(t, "the ConfigMap", func() bool { all, _ := w.Objects(); return len(all) == 1 })
	s.RefuseAll(true)
	eventually(t, "the trouble", func() bool { _, err := w.Trouble(); return err != nil })
	if all, known := w.Objects(); !known || len(all) != 1 || all[0].Data["a"] != "1" {
		t.Errorf("%v, known %v", all, known)
	}
	s.RefuseAll(false)
	s.Put(config(map[string]string{"a": "2"}))
	eventually(t, "the server to answer again", func() bool {
		all, _ := w.Objects()
		_, err := w.Trouble()
		return err == nil && all[0].Data["a"] == "2"
	})
}

func TestAnEvictionSaysWhyItWasRefused(t *testing.T) {
	s := apitest.New(t)
	c := open(t, s)
	pod := PodName{Namespace: "batch", Name: "ffmpeg", UID: "u"}
	if err := c.Evict(context.Background(), pod); err != nil || s.Evicted()[0] != "batch/ffmpeg" {
		t.Fatalf("%v, evicted %v", err, s.Evicted())
	}
	for name, answer := range map[string]struct {
		code  int
		cause string
		is    error // nil: any other error
		gone  bool
	}{
		"a budget":         {429, string(policyv1.DisruptionBudgetCause), ErrBudget, false},
		"a busy server":    {429, "", nil, false},
		"a pod that ended": {404, "", nil, true},
		"no permission":    {403, "", nil, false},
		"a conflict":       {409, "", nil, false},
	} {
		s.Refuse(func(string) (int, string) { return answer.code, answer.cause })
		begun := time.Now()
		err := c.Evict(context.Background(), pod)
		switch {
		case answer.gone && err != nil:
			t.Errorf("%s: %v", name, err)
		case !answer.gone && err == nil:
			t.Errorf("%s: no error", name)
		case errors.Is(err, ErrBudget) != (answer.is != nil):
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

func TestAnEventTellsOfThePod(t *testing.T) {
	s := apitest.New(t)
	o := Occurrence{Pod: PodName{"batch", "ffmpeg", "u"}, Node: "node-1", Warning: true, Reason: "Evicted", Message: "memory: " + strings.Repeat("ä", 2000), At: time.Now()}
	if err := open(t, s).Tell(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	e := s.Events()[0]
	if e.InvolvedObject.Name != "ffmpeg" || e.Type != "Warning" || e.Reason != "Evicted" || len(e.Message) > 1024 || !strings.HasSuffix(e.Message, "ä") || e.Source.Host != "node-1" {
		t.Errorf("%+v", e)
	}
}

func TestAnAppliedStatusNeedsItsObject(t *testing.T) {
	s := apitest.New(t)
	c := open(t, s)
	const path = "/apis/tenon.sh/v1alpha1/nodereports/node-1"
	object := map[string]any{"apiVersion": "tenon.sh/v1alpha1", "kind": "NodeReport"}
	if err := c.Apply(context.Background(), path+"/status", "tenond", object); !errors.Is(err, ErrAbsent) {
		t.Fatalf("%v", err)
	}
	for _, p := range []string{path, path + "/status"} {
		if err := c.Apply(context.Background(), p, "tenond", object); err != nil {
			t.Fatal(err)
		}
	}
}

// TestWhatTheManagerHasReadIsInTheReport reads the report of a node before the manager
// has written into it, and after.
func TestWhatTheManagerHasReadIsInTheReport(t *testing.T) {
	s := apitest.New(t)
	c := open(t, s)
	const path = "/apis/tenon.sh/v1alpha1/nodereports/node-1"
	for i, text := range []string{
		"", // there is no report yet
		`{"status": {"run": "x"}}`,
		`{"status": {"queried": {}}}`,
		`{"status": {"queried": null}}`,
		`{"status": {"queried": {"services": [{"namespace": "shop", "pod": "web", "series": {"family": "rtt_seconds"}, "ends": ["1", "+Inf"], "counts": [1, 2]}]}}}`,
	} {
		if text != "" {
			s.Show(path, []byte(text))
		}
		want := i / 4 // the last one has a service
		got, err := c.Queried(t.Context(), "node-1")
		if err != nil || want > 0 && (got == nil || len(got.Services) != want || got.Services[0].Counts[1] != 2) || want == 0 && got != nil && len(got.Services) > 0 {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	s.Show(path, []byte(`{"status": {"queried": "none"}}`))
	if got, err := c.Queried(t.Context(), "node-1"); err == nil {
		t.Errorf("read %+v", got)
	}
	s.RefuseAll(true)
	if got, err := c.Queried(t.Context(), "node-1"); err == nil {
		t.Errorf("read %+v from a server that is away", got)
	}
}
