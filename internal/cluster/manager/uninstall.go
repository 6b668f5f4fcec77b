package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/manager/opener"
	"tenon.sh/tenon/internal/config"
)

const (
	// checkInterval is the time between two checks whether the agents have ended.
	checkInterval = 500 * time.Millisecond
	// lostAfter is the time that Uninstall waits for agents on nodes that are
	// not ready. Such agents may never end.
	lostAfter = 30 * time.Second
)

// Uninstall removes Tenon from the nodes. It deletes the DaemonSet of the agents, and waits until
// each agent has restored its node and ended. Then it deletes the reports, and removes the batch
// resources from the nodes and the gates from batch pods. It may run again: a missing object is no error. It does not wait for
// agents on nodes that are not ready, but logs the names of these nodes. When such a node is
// ready again, its agent ends and restores what it can. The DaemonSet, the reports and
// their CRD may be deleted already.
func Uninstall(ctx context.Context, rc *rest.Config, agents client.ObjectKey, log *slog.Logger) error {
	return uninstall(ctx, rc, agents, lostAfter, log)
}

func uninstall(ctx context.Context, rc *rest.Config, agents client.ObjectKey, lost time.Duration, log *slog.Logger) error {
	known, err := newScheme()
	if err != nil {
		return fmt.Errorf("make the list of types: %w", err)
	}
	c, err := client.New(rc, client.Options{Scheme: known})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	if err := endAgents(ctx, c, agents, lost, log); err != nil {
		return err
	}
	// A manager that still runs publishes nothing without reports.
	return errors.Join(deleteReports(ctx, c, log), clearNodes(ctx, c, log), openGates(ctx, c, log))
}

// openGates opens the gates of batch pods. Nothing would open them any more, and the
// pods would wait for ever.
func openGates(ctx context.Context, c client.Client, log *slog.Logger) error {
	opened, err := opener.OpenAll(ctx, c, c, Owner)
	log.Info("gates of batch pods opened", "pods", opened)
	return err
}

// endAgents deletes the DaemonSet with foreground propagation, so that the
// DaemonSet exists until its pods have ended. It returns when the DaemonSet is
// gone, or when all remaining pods are on nodes that are not ready.
func endAgents(ctx context.Context, c client.Client, agents client.ObjectKey, lost time.Duration, log *slog.Logger) error {
	set := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: agents.Namespace, Name: agents.Name}}
	err := c.Delete(ctx, set, client.PropagationPolicy(metav1.DeletePropagationForeground))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete DaemonSet %v: %w", agents, err)
	}
	for begun := time.Now(); ; {
		err := c.Get(ctx, agents, set)
		switch {
		case apierrors.IsNotFound(err):
			log.Info("the agents have ended", "daemonset", agents, "seconds", time.Since(begun).Seconds())
			return nil
		case err != nil && ctx.Err() == nil:
			log.Warn("cannot check whether the agents have ended; trying again", "error", err)
		case err == nil && time.Since(begun) >= lost:
			if nodes, err := lostNodes(ctx, c, set); err != nil {
				log.Warn("cannot list the nodes with remaining agents", "error", err)
			} else if len(nodes) > 0 {
				log.Warn("not waiting for agents on nodes that are not ready: their changes stay until the node is ready again", "nodes", nodes)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the pods of DaemonSet %v to end: %d are left: %w", agents, set.Status.CurrentNumberScheduled, context.Cause(ctx))
		case <-time.After(checkInterval):
		}
	}
}

// lostNodes returns the nodes with remaining pods of a DaemonSet. It returns
// nil if one of these nodes is ready.
func lostNodes(ctx context.Context, c client.Client, set *appsv1.DaemonSet) (nodes []string, err error) {
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, err
	}
	var pods corev1.PodList
	if err := c.List(ctx, &pods, client.InNamespace(set.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("list the pods of DaemonSet %s/%s: %w", set.Namespace, set.Name, err)
	}
	for i := range pods.Items {
		name := pods.Items[i].Spec.NodeName
		var n corev1.Node
		err := c.Get(ctx, client.ObjectKey{Name: name}, &n)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read node %s: %w", name, err)
		}
		if isReady(&n) {
			return nil, nil
		}
		nodes = append(nodes, name)
	}
	return nodes, nil
}

// isReady reports whether the condition Ready of a node is true.
func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func deleteReports(ctx context.Context, c client.Client, log *slog.Logger) error {
	var list v1alpha1.NodeReportList
	switch err := c.List(ctx, &list); {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		return nil // their CRD was deleted, and they with it
	case err != nil:
		return fmt.Errorf("list the reports: %w", err)
	}
	var errs []error
	for i := range list.Items {
		if err := client.IgnoreNotFound(c.Delete(ctx, &list.Items[i])); err != nil {
			errs = append(errs, fmt.Errorf("delete the report of node %s: %w", list.Items[i].Name, err))
		}
	}
	log.Info("reports deleted", "reports", len(list.Items)-len(errs))
	return errors.Join(errs...)
}

// clearNodes removes the batch resources from all nodes, and the labels of a rollout that
// the manager wrote.
func clearNodes(ctx context.Context, c client.Client, log *slog.Logger) error {
	var list corev1.NodeList
	if err := c.List(ctx, &list); err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	none := map[corev1.ResourceName]any{}
	for k := range kinds {
		none[k.batchName()] = nil
	}
	cleared := 0
	var errs []error
	for i := range list.Items {
		n := &list.Items[i]
		label := n.Labels[config.LabelRollout]
		labelled := label == config.RolloutOn || label == config.RolloutOff
		if !offersBatch(n) && !labelled {
			continue
		}
		change := map[string]any{"status": map[string]any{"capacity": none, "allocatable": none}}
		if labelled {
			change["metadata"] = map[string]any{"labels": map[string]any{config.LabelRollout: nil}}
		}
		patch, err := json.Marshal(change)
		if err != nil {
			return err
		}
		err = c.Status().Patch(ctx, n, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(Owner))
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("remove the batch resources from node %s: %w", n.Name, err))
			continue
		}
		cleared++
	}
	log.Info("batch resources removed", "nodes", cleared)
	return errors.Join(errs...)
}

// offersBatch reports whether the status of a node has batch resources.
func offersBatch(n *corev1.Node) bool {
	for k := range kinds {
		if _, has := n.Status.Capacity[k.batchName()]; has {
			return true
		}
		if _, has := n.Status.Allocatable[k.batchName()]; has {
			return true
		}
	}
	return false
}
