package promoter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/manager/opener"
	"tenon.sh/tenon/internal/cluster/rollouts"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/rollout"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// theSettings are those of a ConfigMap with this rollout-config and colocation-config.
type theSettings struct{ text, colocation string }

func (s *theSettings) Cluster() *config.Cluster {
	c, _ := config.ParseConfigMap(map[string]string{"colocation-config": s.colocation, "rollout-config": s.text,
		"objective-config": `{"objectives":[{"namespaces":["shop"],"objective":{"runQueueDelay":"2ms"}}]}`})
	return &c
}

// A scene is a cluster whose services wait harm times as long on nodes that are on.
type scene struct {
	t      *testing.T
	api    client.Client
	set    *theSettings
	events *events.FakeRecorder
	at     time.Time
	harm   float64
	rnd    *rand.Rand
	waits  map[string]*v1alpha1.CountedWaits
	// batch: pods of each node request batch resources. stranger is a service of a user.
	batch    bool
	stranger map[string]*v1alpha1.CountedWaits
	// fails decides about each write, before and after it reaches the API server.
	fails func(what string, arrived bool) error
	*Promoter
}

func newScene(t *testing.T, nodes int) *scene {
	types := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(types), v1alpha1.AddToScheme(types)); err != nil {
		t.Fatal(err)
	}
	s := &scene{
		t: t, set: &theSettings{`{"enable":true,"marginPercent":10,"nodeSelector":{"matchLabels":{"pool":"a"}}}`, `{"enable":true}`}, at: begin, harm: 1, batch: true,
		events: events.NewFakeRecorder(100_000), rnd: rand.New(rand.NewPCG(1, 2)), waits: map[string]*v1alpha1.CountedWaits{},
	}
	write := func(what string, do func() error) error {
		if s.fails == nil {
			return do()
		}
		if err := s.fails(what, false); err != nil {
			return err
		}
		return errors.Join(do(), s.fails(what, true))
	}
	s.api = fake.NewClientBuilder().WithScheme(types).WithStatusSubresource(&v1alpha1.NodeReport{}).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if _, is := o.(*corev1.ConfigMap); !is {
				return c.Create(ctx, o, opts...)
			}
			return write("record", func() error { return c.Create(ctx, o, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.UpdateOption) error {
			return write("record", func() error { return c.Update(ctx, o, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, _ string, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
			return write("label", func() error {
				return c.Patch(ctx, o, patch) // the API server takes labels with the status of a node
			})
		},
	}).Build()
	for _, name := range []string{"shop", "team"} {
		if err := s.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range nodes {
		s.node(fmt.Sprintf("n%02d", i), map[string]string{"pool": "a"})
	}
	s.restart()
	return s
}

func (s *scene) node(name string, labels map[string]string) {
	s.t.Helper()
	if err := s.api.Create(s.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); err != nil {
		s.t.Fatal(err)
	}
	s.waits[name] = &v1alpha1.CountedWaits{}
}

// restart has another replica lead.
func (s *scene) restart() {
	s.Promoter = &Promoter{
		Access:    opener.Access{Cache: cached{of: s}, Live: s.api, Client: s.api, Owner: "tenon-manager"},
		Voice:     opener.Voice{Events: s.events, Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return s.at }},
		Namespace: "tenon-system", Settings: s.set,
		Seen: func(*v1alpha1.NodeReport) (time.Time, bool) { return s.at, true },
	}
}

// cached reads lists as the cache does. It has a report of each node.
type cached struct {
	cache.Cache
	of *scene
}

func (c cached) List(ctx context.Context, to client.ObjectList, opts ...client.ListOption) error {
	reports, is := to.(*v1alpha1.NodeReportList)
	if !is {
		return c.of.api.List(ctx, to, opts...)
	}
	for name, w := range c.of.waits {
		r := v1alpha1.NodeReport{ObjectMeta: metav1.ObjectMeta{Name: name}}
		counted := *w
		if c.of.batch {
			amount := resource.MustParse("2")
			r.Status.Batch.CPU = &v1alpha1.BatchAmount{Requested: &amount}
		}
		r.Status.Run, r.Status.Objectives = "a", &v1alpha1.Objectives{Services: []v1alpha1.ServiceObjective{{Namespace: "shop", Pod: "web-7d4b9c6f5-x2x4z", Counted: &counted}}}
		if c.of.stranger != nil {
			more := *c.of.stranger[name]
			r.Status.Objectives.Services = append(r.Status.Objectives.Services, v1alpha1.ServiceObjective{Namespace: "team", Pod: "mine", Counted: &more})
		}
		reports.Items = append(reports.Items, r)
	}
	return nil
}

// labels returns the label of each node that has one.
func (s *scene) labels() map[string]string {
	s.t.Helper()
	var list corev1.NodeList
	if err := s.api.List(s.t.Context(), &list); err != nil {
		s.t.Fatal(err)
	}
	all := map[string]string{}
	for _, n := range list.Items {
		if v, has := n.Labels[config.LabelRollout]; has {
			all[n.Name] = v
		}
	}
	return all
}

func (s *scene) on() (names []string) {
	for name, v := range s.labels() {
		if v == config.RolloutOn {
			names = append(names, name)
		}
	}
	return names
}

// minute makes a step, after the services have waited for a minute.
func (s *scene) minute() error {
	s.t.Helper()
	labels := s.labels()
	for name, c := range s.waits {
		wait := 1e5 * (1 + 0.1*s.rnd.Float64())
		if labels[name] == config.RolloutOn {
			wait *= s.harm
		}
		c.Waits += 1000
		c.Waited.Duration += time.Duration(1000 * wait)
	}
	err := s.step(s.t.Context())
	s.at = s.at.Add(time.Minute)
	return err
}

// stored returns the state that the API server has.
func (s *scene) stored() rollout.State {
	s.t.Helper()
	var m corev1.ConfigMap
	if err := s.api.Get(s.t.Context(), client.ObjectKey{Namespace: "tenon-system", Name: rollouts.Name}, &m); err != nil {
		s.t.Fatal(err)
	}
	state, err := rollouts.Read(&m)
	if err != nil {
		s.t.Fatal(err)
	}
	return state
}

func (s *scene) until(phase rollout.Phase, most time.Duration) {
	s.t.Helper()
	for s.at.Sub(begin) < most {
		if err := s.minute(); err != nil && s.fails == nil {
			s.t.Fatal(err)
		}
		if s.state.Phase == phase {
			return
		}
	}
	s.t.Fatalf("no phase %s within %v: %+v", phase, most, s.state.Verdicts)
}

func (s *scene) said(reason string) bool {
	for len(s.events.Events) > 0 {
		if strings.Contains(<-s.events.Events, reason) {
			return true
		}
	}
	return false
}

// TestARolloutEndsWithAllNodesOn follows a rollout of eight nodes. Two others are not
// selected, one its owner keeps out, and one takes no pods.
func TestARolloutEndsWithAllNodesOn(t *testing.T) {
	s := newScene(t, 8)
	s.node("other", map[string]string{"pool": "b"})
	s.node("kept-out", map[string]string{"pool": "a", config.LabelRollout: config.RolloutNever})
	s.until(rollout.Compares, time.Hour)
	cordoned := &corev1.Node{}
	if err := s.api.Get(t.Context(), client.ObjectKey{Name: "n07"}, cordoned); err != nil {
		t.Fatal(err)
	}
	cordoned.Spec.Unschedulable = true
	if err := s.api.Update(t.Context(), cordoned); err != nil {
		t.Fatal(err)
	}
	for s.state.Phase != rollout.Done && s.at.Sub(begin) < 48*time.Hour {
		if err := s.minute(); err != nil {
			t.Fatal(err)
		}
		labels := s.labels()
		if labels["kept-out"] != config.RolloutNever || labels["other"] != "" {
			t.Fatalf("labels %v", labels)
		}
		if s.state.Phase == rollout.Compares && (labels["n07"] == config.RolloutOn || len(s.on()) > 4) {
			t.Fatalf("labels %v", labels)
		}
	}
	if got := s.on(); len(got) != 8 || !s.said("RolloutFinishes") {
		t.Errorf("on are %v, in phase %s", got, s.state.Phase)
	}
	reports := s.waits
	s.waits = nil
	for _, n := range []string{"n00", "n01"} { // an uninstallation removes the reports, and then the labels
		node := &corev1.Node{}
		if err := s.api.Get(t.Context(), client.ObjectKey{Name: n}, node); err != nil {
			t.Fatal(err)
		}
		delete(node.Labels, config.LabelRollout)
		if err := s.api.Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.minute(); err != nil || len(s.on()) != 6 {
		t.Errorf("without reports, on are %v: %v", s.on(), err)
	}
	s.waits = reports
	if err := s.minute(); err != nil || len(s.on()) != 8 {
		t.Errorf("with reports, on are %v: %v", s.on(), err)
	}
	s.set.text = `{"enable":false}`
	if err := s.minute(); err != nil {
		t.Fatal(err)
	}
	if got := s.labels(); len(got) != 1 || got["kept-out"] != config.RolloutNever {
		t.Errorf("without a rollout there are labels %v", got)
	}
}

// TestHarmTakesBatchWorkFromAllNodes has services that wait three times as long.
func TestHarmTakesBatchWorkFromAllNodes(t *testing.T) {
	s := newScene(t, 4)
	s.harm = 3
	s.until(rollout.Back, 24*time.Hour)
	if len(s.on()) > 0 || !s.said("Warning RolloutGoesBack") {
		t.Errorf("labels %v after it went back", s.labels())
	}
	if l := s.state.Verdicts[len(s.state.Verdicts)-1]; l.Spent > 1 {
		t.Errorf("it went back after %+v", l)
	}
	s.restart()
	for range 100 {
		if err := s.minute(); err != nil || len(s.on()) > 0 {
			t.Fatalf("another replica has %v on: %v", s.on(), err)
		}
	}
	s.set.text = strings.Replace(s.set.text, `"enable":true`, `"enable":true,"attempt":1`, 1)
	s.harm = 1
	s.until(rollout.Done, 72*time.Hour)
}

var errCut = errors.New("cut off")

// TestAManagerThatDiesBetweenRecordAndLabels cuts each write off at random, before or
// after it arrives, and has another replica lead then. No label is on that the stored
// state does not have on, once a step has succeeded; and the rollout comes to its end.
func TestAManagerThatDiesBetweenRecordAndLabels(t *testing.T) {
	s := newScene(t, 8)
	cuts := 0
	s.fails = func(string, bool) error {
		if s.rnd.IntN(12) == 0 {
			cuts++
			return errCut
		}
		return nil
	}
	for s.state.Phase != rollout.Done && s.at.Sub(begin) < 6*24*time.Hour {
		before := s.on()
		err := s.minute()
		state := s.stored()
		for _, name := range s.on() {
			had := false
			for _, b := range before {
				had = had || b == name
			}
			if !state.IsOn(name) && (err == nil || !had) {
				t.Fatalf("%s was labelled and is not stored (%v)", name, err)
			}
		}
		if err == nil && state.Phase == rollout.Compares && len(s.on()) != len(state.Pairs) {
			t.Fatalf("%v are on, and the stored pairs are %v", s.on(), state.Pairs)
		}
		if err != nil {
			s.restart()
		}
	}
	if s.state.Phase != rollout.Done || cuts < 10 {
		t.Errorf("after %d cuts the phase is %s, %d blocks of %d count", cuts, s.state.Phase, s.state.Blocks, s.state.Drawn)
	}
}

// TestAStateThatCannotBeTurnsNodesOff damages the stored state.
func TestAStateThatCannotBeTurnsNodesOff(t *testing.T) {
	s := newScene(t, 4)
	for len(s.on()) == 0 {
		if err := s.minute(); err != nil {
			t.Fatal(err)
		}
	}
	var m corev1.ConfigMap
	key := client.ObjectKey{Namespace: "tenon-system", Name: rollouts.Name}
	if err := s.api.Get(t.Context(), key, &m); err != nil {
		t.Fatal(err)
	}
	m.Data["state.json"] = strings.Replace(m.Data["state.json"], `"phase":"compares"`, `"phase":"done"`, 1)
	if err := s.api.Update(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	s.restart()
	for range 3 {
		if err := s.minute(); !errors.Is(err, errRefused) || len(s.on()) > 0 {
			t.Fatalf("%v, and %v are on", err, s.on())
		}
	}
	if !s.said("RolloutRefused") || len(s.events.Events) > 0 {
		t.Error("it is not said once")
	}
	if err := s.api.Delete(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	s.until(rollout.Done, 72*time.Hour)
}

// TestAFaultMovesNoNode has a rollout-config that cannot be read after it was read.
func TestAFaultMovesNoNode(t *testing.T) {
	s := newScene(t, 4)
	for len(s.on()) == 0 {
		if err := s.minute(); err != nil {
			t.Fatal(err)
		}
	}
	before := fmt.Sprint(s.labels())
	s.set.text = `{"enable":true}` // no margin
	for range 100 {
		if err := s.minute(); err != nil || fmt.Sprint(s.labels()) != before {
			t.Fatalf("labels %v, %v", s.labels(), err)
		}
	}
}

// TestOldReportsDoNotCount has reports that nobody has seen change for a while: from the
// first minute, so that no block begins, or while a node is on.
func TestOldReportsDoNotCount(t *testing.T) {
	for _, blocks := range []int{0, 1} {
		s := newScene(t, 4)
		for s.state.Drawn < blocks {
			if err := s.minute(); err != nil {
				t.Fatal(err)
			}
		}
		s.Seen = func(*v1alpha1.NodeReport) (time.Time, bool) { return begin, true }
		for range 60 * 8 {
			if err := s.minute(); err != nil {
				t.Fatal(err)
			}
		}
		if s.state.Blocks > 0 || min(s.state.Drawn, 1) != blocks || len(s.on()) > 0 {
			t.Errorf("%d blocks of %d count, and on are %v", s.state.Blocks, s.state.Drawn, s.on())
		}
	}
}

// TestAUserCannotEndTheRollout has a service that a user may make, which waits a thousand
// times as long on nodes that are on. It counts only when the administrator allows the
// namespace to have objectives.
func TestAUserCannotEndTheRollout(t *testing.T) {
	run := func(s *scene) rollout.Phase {
		s.stranger = map[string]*v1alpha1.CountedWaits{}
		for name := range s.waits {
			s.stranger[name] = &v1alpha1.CountedWaits{}
		}
		for s.state.Phase != rollout.Done && s.state.Phase != rollout.Back && s.at.Sub(begin) < 72*time.Hour {
			labels := s.labels()
			for name, c := range s.stranger {
				c.Waits += 1000
				c.Waited.Duration += time.Second
				if labels[name] == config.RolloutOn {
					c.Waited.Duration += 1000 * time.Second
				}
			}
			if err := s.minute(); err != nil {
				t.Fatal(err)
			}
		}
		return s.state.Phase
	}
	s := newScene(t, 4)
	if phase := run(s); phase != rollout.Done {
		t.Errorf("a user has brought it to the phase %s: %+v", phase, s.state.Verdicts)
	}
	s = newScene(t, 4)
	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team", Labels: map[string]string{"allow.tenon.sh/objectives": "true"}}}
	if err := s.api.Update(t.Context(), team); err != nil {
		t.Fatal(err)
	}
	if phase := run(s); phase != rollout.Back {
		t.Errorf("a service that counts has brought it to the phase %s", phase)
	}
}

// TestNodesWithoutBatchWorkProveNothing has pods that request no batch resources: no block
// counts. With colocation off, there is no rollout.
func TestNodesWithoutBatchWorkProveNothing(t *testing.T) {
	s := newScene(t, 4)
	s.batch = false
	for range 60 * 12 {
		if err := s.minute(); err != nil {
			t.Fatal(err)
		}
	}
	if s.state.Blocks > 0 || s.state.Drawn < 3 || s.state.Phase != rollout.Compares {
		t.Errorf("%d blocks of %d count, in the phase %s", s.state.Blocks, s.state.Drawn, s.state.Phase)
	}
	before := s.stored()
	s.set.colocation = `{"enable":false}`
	for range 60 {
		if err := s.minute(); err != nil || len(s.labels()) > 0 {
			t.Fatalf("labels %v without colocation, %v", s.labels(), err)
		}
	}
	if after := s.stored(); after.Drawn != before.Drawn {
		t.Error("the rollout goes on without colocation")
	}
	s.set.colocation, s.batch = `{"enable":true}`, true
	s.until(rollout.Done, 96*time.Hour)
}
