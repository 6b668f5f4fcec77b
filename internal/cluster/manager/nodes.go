package manager

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/manager/settings"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/overcommit"
)

// Owner is the field manager of all fields that the manager writes.
const Owner = "tenon-manager"

// nodes publishes batch resources. It reads the inputs of Decide, and writes what Decide returns.
type nodes struct {
	client    client.Client // reads from the cache
	settings  interface{ Cluster() *config.Cluster }
	sightings *sightings
	events    events.EventRecorder
	log       *slog.Logger
	metrics   *metrics
	now       func() time.Time
	dry       bool

	mu sync.Mutex
	of map[string]*nodeMemory
}

// A nodeMemory is the state that one call of Reconcile passes to the next call
// for the same node. These calls do not overlap.
type nodeMemory struct {
	memory Memory
	state  State
	reason string
	// publishedStatus is the last written content of status.published. told is the
	// time of that write.
	publishedStatus v1alpha1.Published
	told            time.Time
	// timed is the time of the last report that the delay metric has counted.
	timed time.Time
	// writtenVersion is the resource version of the node before the last write. If
	// the cache has this version, it has not seen the write.
	writtenVersion string
	// degraded means that the last event about the node reported a degradation.
	degraded bool

	// rules and faults were computed from the configuration cluster, and from this
	// version of the Node object.
	cluster *config.Cluster
	version string
	rules   overcommit.Config
	faults  []string
}

// Reconcile decides the batch resources of one node, and writes them.
func (r *nodes) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	cluster := r.settings.Cluster()
	if cluster == nil {
		return reconcile.Result{RequeueAfter: 10 * time.Second}, nil // new settings trigger a call sooner
	}
	var n corev1.Node
	if err := r.client.Get(ctx, request.NamespacedName, &n); err != nil {
		if !apierrors.IsNotFound(err) {
			return reconcile.Result{}, fmt.Errorf("read node %s: %w", request.Name, err)
		}
		r.forget(request.Name)
		return reconcile.Result{}, nil
	}
	if r.isBehind(&n) {
		return reconcile.Result{RequeueAfter: 10 * time.Millisecond}, nil
	}
	var report v1alpha1.NodeReport
	c := Case{Node: factsOf(&n)}
	switch err := r.client.Get(ctx, request.NamespacedName, &report); {
	case err == nil:
		c.Report = r.sightings.see(&report)
	case !apierrors.IsNotFound(err):
		return reconcile.Result{}, fmt.Errorf("read the report of node %s: %w", request.Name, err)
	default:
		r.sightings.forget(request.Name)
	}
	c.At = r.now()
	m := r.remember(&n, report.Status.Published, c.At)
	m.consult(cluster, &n)
	c.Rules, c.Memory = m.rules, m.memory
	c.Node.Faults = append(c.Node.Faults, m.faults...)
	v := Decide(c)
	again, err := r.apply(ctx, &n, &report, m, c, v)
	if again == 0 || v.Again > 0 && v.Again < again {
		again = v.Again
	}
	return reconcile.Result{RequeueAfter: again}, err
}

// isBehind reports whether the cache has not seen the last write to a node yet.
// One second after the write it returns false in any case, because the cache
// never shows a write that changed nothing.
func (r *nodes) isBehind(n *corev1.Node) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.of[n.Name]
	return m != nil && m.writtenVersion != "" && m.writtenVersion == n.ResourceVersion && r.now().Sub(m.memory.Wrote) < time.Second
}

// remember returns the memory of a node. A new leader has no memory, and takes
// the time of the last write from the report.
func (r *nodes) remember(n *corev1.Node, p *v1alpha1.Published, now time.Time) *nodeMemory {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.of[n.Name]
	if m == nil {
		m = &nodeMemory{}
		if p != nil && p.At.Time.Before(now) {
			m.memory.Wrote = p.At.Time
		}
		r.of[n.Name] = m
	}
	return m
}

func (r *nodes) forget(name string) {
	r.sightings.forget(name)
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.of, name)
}

// consult computes the settings for the node again if the inputs have changed.
func (m *nodeMemory) consult(c *config.Cluster, n *corev1.Node) {
	if m.cluster == c && m.version == n.ResourceVersion && n.ResourceVersion != "" {
		return
	}
	own, faults := c.Node(n.Labels, n.Annotations)
	m.cluster, m.version, m.rules, m.faults = c, n.ResourceVersion, own.Policy.Overcommit, nil
	for _, f := range faults {
		m.faults = append(m.faults, f.String())
	}
}

// apply writes a decision: first the amounts into the node, then the reason
// into the report. It returns the remaining delay of a write, or 0.
func (r *nodes) apply(ctx context.Context, n *corev1.Node, report *v1alpha1.NodeReport, m *nodeMemory, c Case, v Verdict) (time.Duration, error) {
	before := m.state
	r.mu.Lock()
	m.memory, m.state, m.reason = v.Memory, v.State, v.Reason
	r.mu.Unlock()
	if r.dry {
		if v.Write {
			r.log.Info("would write", "node", n.Name, "batch-cpu", show(cpu, v), "batch-memory", show(memory, v), "state", v.State, "reason", v.Reason)
		}
		return 0, nil
	}
	if v.Write {
		object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		if err := r.client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patchOf(c.Node, v)), client.FieldOwner(Owner)); err != nil {
			r.metrics.failed()
			return 0, fmt.Errorf("write batch resources of node %s: %w", n.Name, err)
		}
		r.mu.Lock()
		m.memory.wrote(c, v)
		m.writtenVersion = n.ResourceVersion
		r.mu.Unlock()
		r.metrics.wrote(direction(c, v))
		if c.Report.Fresh && !c.Report.Seen.Equal(m.timed) {
			r.metrics.delay.Observe(r.now().Sub(c.Report.Seen).Seconds())
		}
		r.log.Debug("wrote", "node", n.Name, "batch-cpu", show(cpu, v), "batch-memory", show(memory, v), "state", v.State, "reason", v.Reason)
	}
	m.timed = c.Report.Seen
	r.announce(n, m, before, v)
	return r.explain(ctx, report, m, c, v)
}

// show prints the wanted amount of a resource.
func show(k kind, v Verdict) string {
	if amount, has := v.Want[k].Value(); has {
		return k.printAmount(amount)
	}
	return "none"
}

// patchOf returns one patch that sets the status and the annotation of a node.
// With one patch, capacity and allocatable change together.
func patchOf(f Facts, v Verdict) []byte {
	amounts := map[corev1.ResourceName]any{}
	for k := range kinds {
		if amount, has := v.Want[k].Value(); has {
			q := k.quantity(amount)
			amounts[k.batchName()] = q.String()
		} else {
			amounts[k.batchName()] = nil
		}
	}
	patch := map[string]any{"status": map[string]any{"capacity": amounts, "allocatable": amounts}}
	if v.Origin != f.Origin {
		var origin any
		if v.Origin != "" {
			origin = v.Origin
		}
		patch["metadata"] = map[string]any{"annotations": map[string]any{originKey: origin}}
	}
	text, _ := json.Marshal(patch) //nolint:errcheck // maps of strings can always be encoded
	return text
}

// direction returns the metric label for a change: whether the amounts rise or fall.
func direction(c Case, v Verdict) string {
	up := "less"
	for k := range kinds {
		want, has := v.Want[k].Value()
		present, had := c.Node.Present[k].Value()
		switch {
		case had && !has:
			return "removed"
		case has && (!had || want > present):
			up = "more"
		}
	}
	return up
}

// announce creates an event when the amounts of a node become degraded, and when this is over.
func (r *nodes) announce(n *corev1.Node, m *nodeMemory, before State, v Verdict) {
	if before == v.State {
		return
	}
	bad := v.State == Refused || v.State == Stale || v.State == Vanished || v.State == Doubtful && before != ""
	switch {
	case bad:
		m.degraded = true
		r.events.Eventf(n, nil, corev1.EventTypeWarning, "BatchResourcesDegraded", "Publish", "%s", settings.Clip(v.Reason))
		r.log.Warn("degraded", "node", n.Name, "state", v.State, "reason", v.Reason)
	case m.degraded && v.State != Doubtful:
		m.degraded = false
		r.events.Eventf(n, nil, corev1.EventTypeNormal, "BatchResourcesRestored", "Publish", "%s", settings.Clip(v.Reason))
		r.log.Info("restored", "node", n.Name, "state", v.State, "reason", v.Reason)
	}
}

// explain writes the published amounts and the reason into the report. In a
// normal state, a change of only the reason waits until Pause has passed since
// the last write. Then explain returns the remaining time.
func (r *nodes) explain(ctx context.Context, report *v1alpha1.NodeReport, m *nodeMemory, c Case, v Verdict) (time.Duration, error) {
	if c.Report.Batch == nil {
		return 0, nil
	}
	p := v1alpha1.Published{Reason: settings.Clip(v.Reason)}
	if !m.memory.Wrote.IsZero() {
		p.At = metav1.NewMicroTime(m.memory.Wrote)
	}
	if amount, has := v.Want[cpu].Value(); has {
		q := cpu.reportQuantity(amount)
		p.CPU = &q
	}
	if amount, has := v.Want[memory].Value(); has {
		q := memory.reportQuantity(amount)
		p.Memory = &q
	}
	if m.publishedStatus.Reason == p.Reason && sameContent(p, m.publishedStatus) && c.At.Sub(m.told) < Pause {
		return 0, nil // the report may not be in the cache yet
	}
	fine := v.State == Published || v.State == Waiting || v.State == Bounded || v.State == Held || v.State == Starting
	if o := report.Status.Published; o != nil && sameContent(p, *o) {
		age := c.At.Sub(m.told)
		switch {
		case o.Reason == p.Reason:
			return 0, nil
		case fine && age < Pause:
			return Pause - age, nil
		}
	}
	said := map[string]any{"reason": p.Reason}
	if p.CPU != nil {
		said["cpu"] = p.CPU
	}
	if p.Memory != nil {
		said["memory"] = p.Memory
	}
	if !p.At.IsZero() {
		said["at"] = p.At
	}
	apply, err := json.Marshal(map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NodeReport",
		"metadata": map[string]any{"name": report.Name}, "status": map[string]any{"published": said},
	})
	if err != nil {
		return 0, fmt.Errorf("encode status.published of node %s: %w", report.Name, err)
	}
	object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NodeReport"}, ObjectMeta: metav1.ObjectMeta{Name: report.Name}}
	err = r.client.Status().Patch(ctx, object, client.RawPatch(types.ApplyPatchType, apply), client.FieldOwner(Owner), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("write status.published of node %s: %w", report.Name, err)
	}
	m.publishedStatus, m.told = p, c.At
	return 0, nil
}

// sameContent reports whether two values of status.published differ only in
// their time.
func sameContent(a, b v1alpha1.Published) bool {
	return (a.CPU == nil) == (b.CPU == nil) && (a.CPU == nil || a.CPU.Cmp(*b.CPU) == 0) &&
		(a.Memory == nil) == (b.Memory == nil) && (a.Memory == nil || a.Memory.Cmp(*b.Memory) == 0)
}

// states returns how many nodes are in each state.
func (r *nodes) states() map[State]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := map[State]int{}
	for _, m := range r.of {
		count[m.state]++
	}
	return count
}
