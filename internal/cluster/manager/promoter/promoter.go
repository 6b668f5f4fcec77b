// Package promoter carries out a rollout: it labels the nodes on which batch work is on
// or off, as package rollout decides by the reports of the nodes. Whatever it must not
// forget is in a ConfigMap before a node changes. So another replica can go on at any
// time, and sets the labels that the last one has not set.
package promoter

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/manager/opener"
	"tenon.sh/tenon/internal/cluster/rollouts"
	"tenon.sh/tenon/internal/cluster/tenant"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/decide/rollout"
	"tenon.sh/tenon/internal/decide/trials/switchback"
)

const (
	// every is the time between two steps.
	every = 15 * time.Second
	// staleAfter is the age of a report from which on its counters do not count. Agents
	// report at least once a minute.
	staleAfter = 3 * time.Minute
)

// A Promoter carries out a rollout on the replica that leads.
type Promoter struct {
	// The cache has the nodes and their reports. The ConfigMap is read from the API server.
	opener.Access
	opener.Voice
	Namespace string // of the manager
	Settings  interface{ Cluster() *config.Cluster }
	// Seen returns when this process saw a report change, and whether it is recent.
	Seen func(r *v1alpha1.NodeReport) (at time.Time, fresh bool)

	record  *corev1.ConfigMap // as the API server has it; nil: not read yet
	state   rollout.State
	block   rollout.Block
	refused string // what the last event said about a record that is refused
	failed  string // the last error that the log has
}

// NeedLeaderElection makes only the replica that leads call Start.
func (p *Promoter) NeedLeaderElection() bool { return true }

// Start makes a step now and then, until ctx ends.
func (p *Promoter) Start(ctx context.Context) error {
	for {
		err := p.step(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != p.failed {
			p.failed = err.Error()
			p.Log.Warn("the rollout makes no step; tried again", "err", err)
		} else if err == nil {
			p.failed = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(every):
		}
	}
}

// step decides, stores what it has decided, and labels the nodes.
func (p *Promoter) step(ctx context.Context) error {
	c := p.Settings.Cluster()
	if c == nil || c.LacksRollout() {
		return nil
	}
	var list corev1.NodeList
	if err := p.Cache.List(ctx, &list); err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	wanted, enabled := c.Rollout()
	if !enabled {
		p.record, p.block = nil, rollout.Block{}
		return p.label(ctx, list.Items, func(*corev1.Node) string { return "" })
	}
	selected := func(n *corev1.Node) bool { return wanted.Selector.Selects(n.Labels) }
	nodes, reports, err := p.nodes(ctx, list.Items, selected, c)
	switch {
	case err != nil:
		return err
	case !reports: // an uninstallation has removed them, and the labels
		return nil
	}
	if err := p.load(ctx); errors.Is(err, errRefused) {
		return errors.Join(err, p.label(ctx, list.Items, func(n *corev1.Node) string { return either(selected(n), config.RolloutOff, "") }))
	} else if err != nil {
		return err
	}
	state, block, said := rollout.Step(wanted.Rules(), p.state, p.block, nodes, p.Now().UTC(), rand.Uint64())
	if !reflect.DeepEqual(state, p.state) {
		if err := p.store(ctx, state); err != nil {
			return err
		}
	}
	p.state, p.block = state, block
	for _, v := range said {
		p.tell(v)
	}
	return p.label(ctx, list.Items, func(n *corev1.Node) string {
		return either(selected(n), either(state.IsOn(n.Name), config.RolloutOn, config.RolloutOff), "")
	})
}

func either(first bool, a, b string) string {
	if first {
		return a
	}
	return b
}

var errRefused = errors.New("batch work is off on all nodes of the rollout until ConfigMap " + rollouts.Name + " is deleted")

// load reads the stored state, if this process does not know it.
func (p *Promoter) load(ctx context.Context) error {
	if p.record != nil {
		return nil
	}
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: rollouts.Name}}
	switch err := p.Live.Get(ctx, client.ObjectKeyFromObject(m), m); {
	case apierrors.IsNotFound(err):
		p.record, p.state = m, rollout.State{}
		return nil
	case err != nil:
		return fmt.Errorf("read ConfigMap %s/%s: %w", p.Namespace, rollouts.Name, err)
	}
	s, err := rollouts.Read(m)
	if err != nil {
		if err.Error() != p.refused {
			p.refused = err.Error()
			p.Events.Eventf(m, nil, corev1.EventTypeWarning, "RolloutRefused", "Read", "%v: %v", err, errRefused)
		}
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	p.record, p.state, p.refused = m, s, ""
	return nil
}

// store writes the state. After an error it is not known what is stored, so that the next
// step reads it again.
func (p *Promoter) store(ctx context.Context, s rollout.State) error {
	data, err := rollouts.Data(s)
	if err != nil {
		return err
	}
	next := p.record.DeepCopy()
	next.Data = data
	write := func() error { return p.Client.Update(ctx, next, client.FieldOwner(p.Owner)) }
	if next.ResourceVersion == "" {
		write = func() error { return p.Client.Create(ctx, next, client.FieldOwner(p.Owner)) }
	}
	if err := write(); err != nil {
		p.record = nil
		return fmt.Errorf("write ConfigMap %s/%s: %w", p.Namespace, rollouts.Name, err)
	}
	p.record = next
	return nil
}

// nodes returns the nodes that may take part, and whether any node of the cluster reports. A
// node that takes no new pods does not take part: batch work would not come to it.
func (p *Promoter) nodes(ctx context.Context, all []corev1.Node, selected func(*corev1.Node) bool, c *config.Cluster) ([]rollout.Node, bool, error) {
	var spaces corev1.NamespaceList
	if err := p.Cache.List(ctx, &spaces); err != nil {
		return nil, false, fmt.Errorf("list the namespaces: %w", err)
	}
	// Every user may give a pod an objective, unless the administrator forbids it. A
	// service that can end the rollout of all must be one that the administrator means.
	meant := map[string]bool{"": true} // of the file of a node
	for i := range spaces.Items {
		n := &spaces.Items[i]
		meant[n.Name] = c.NamesObjectives(n.Name) || tenant.Namespace{Name: n.Name, Labels: n.Labels, Home: p.Namespace}.Granted(tenant.Objectives)
	}
	var list v1alpha1.NodeReportList
	if err := p.Cache.List(ctx, &list); err != nil {
		return nil, false, fmt.Errorf("list the reports of the nodes: %w", err)
	}
	reports := make(map[string]*v1alpha1.NodeReport, len(list.Items))
	for i := range list.Items {
		reports[list.Items[i].Name] = &list.Items[i]
	}
	now := p.Now()
	var found []rollout.Node
	for i := range all {
		n := &all[i]
		label := n.Labels[config.LabelRollout]
		if !selected(n) || label == config.RolloutNever || n.Spec.Unschedulable {
			continue
		}
		one := rollout.Node{Name: n.Name, On: label == config.RolloutOn}
		if r := reports[n.Name]; r != nil {
			at, fresh := p.Seen(r)
			one.Run, one.Fresh = r.Status.Run, fresh && now.Sub(at) < staleAfter
			one.Waits, one.Batch = waitsOf(r, meant), hasBatch(r)
		}
		found = append(found, one)
	}
	return found, len(reports) > 0, nil
}

// hasBatch reports whether pods of the node request batch resources.
func hasBatch(r *v1alpha1.NodeReport) bool {
	b := r.Status.Batch
	for _, a := range []*v1alpha1.BatchAmount{b.CPU, b.Memory} {
		if a != nil && a.Requested != nil && a.Requested.Sign() > 0 {
			return true
		}
	}
	return false
}

// waitsOf returns the counters of the services in a report that are in these namespaces, by
// pod.
func waitsOf(r *v1alpha1.NodeReport, in map[string]bool) map[string]switchback.Count {
	if r.Status.Objectives == nil {
		return nil
	}
	waits := map[string]switchback.Count{}
	for _, s := range r.Status.Objectives.Services {
		if s.Counted == nil || !in[s.Namespace] {
			continue
		}
		c := switchback.Count{Waits: s.Counted.Waits, Waited: s.Counted.Waited.Duration}
		if t := s.Counted.Throttled; t != nil {
			c.Throttled = t.Duration
		}
		name := s.Pod
		if s.Namespace != "" {
			name = s.Namespace + "/" + s.Pod
		}
		waits[name] = c
	}
	return waits
}

// tell says what was found, by an event about the ConfigMap and in the log.
func (p *Promoter) tell(v rollout.Verdict) {
	reasons := map[rollout.Code]string{
		rollout.Begins: "RolloutBegins", rollout.Advances: "RolloutAdvances", rollout.Finishes: "RolloutFinishes",
		rollout.Waits: "RolloutUndecided", rollout.Harm: "RolloutGoesBack", rollout.Price: "RolloutGoesBack", rollout.GivesUp: "RolloutGoesBack",
	}
	kind := corev1.EventTypeNormal
	if p.state.Phase == rollout.Back {
		kind = corev1.EventTypeWarning
	}
	text := rollouts.Sentence(p.state.Config, v)
	p.Events.Eventf(p.record, nil, kind, reasons[v.Code], "Rollout", "%s", text)
	p.Log.Info("rollout", "code", v.Code, "stage", v.Stage+1, "ratio", v.Ratio, "upper", v.Upper, "allowed", v.Allowed, "text", text)
}

// label writes the label that each node should have; "" is none. Nodes go off before
// others go on. Nodes that their owner keeps out stay as they are.
func (p *Promoter) label(ctx context.Context, nodes []corev1.Node, want func(*corev1.Node) string) error {
	var errs []error
	for _, on := range []bool{false, true} {
		for i := range nodes {
			n := &nodes[i]
			has, should := n.Labels[config.LabelRollout], want(n)
			if has == should || has == config.RolloutNever || (should == config.RolloutOn) != on || should == "" && has != config.RolloutOn && has != config.RolloutOff {
				continue
			}
			var value any
			if should != "" {
				value = should
			}
			patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": map[string]any{config.LabelRollout: value}}})
			if err != nil {
				return err
			}
			object := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
			// The status is enough: the API server takes labels with it, and the manager needs no
			// right to change the taints of nodes.
			if err := p.Client.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(p.Owner)); client.IgnoreNotFound(err) != nil {
				errs = append(errs, fmt.Errorf("write label %s of node %s: %w", config.LabelRollout, n.Name, err))
			}
		}
	}
	return errors.Join(errs...)
}
