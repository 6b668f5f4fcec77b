package manager

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
)

// looks is how often it is looked whether the agents have ended.
const looks = 500 * time.Millisecond

// Uninstall takes Tenon off the nodes: it deletes the agents' DaemonSet, upon
// which each agent puts back what it has changed, waits until they have all
// ended, deletes the reports, and takes the batch resources off the nodes. It
// may be run again; what is gone is no error.
func Uninstall(ctx context.Context, rc *rest.Config, agents client.ObjectKey, log *slog.Logger) error {
	known, err := newScheme()
	if err != nil {
		return fmt.Errorf("make the list of types: %w", err)
	}
	c, err := client.New(rc, client.Options{Scheme: known})
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	if err := endAgents(ctx, c, agents, log); err != nil {
		return err
	}
	// Without reports a manager that still runs publishes nothing any more.
	return errors.Join(deleteReports(ctx, c, log), clearNodes(ctx, c, log))
}

// endAgents returns when the DaemonSet is gone, which in the foreground it is
// after its pods.
func endAgents(ctx context.Context, c client.Client, agents client.ObjectKey, log *slog.Logger) error {
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
			log.Warn("whether the agents have ended is not known yet", "error", err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the pods of DaemonSet %v to end: %d are left: %w", agents, set.Status.CurrentNumberScheduled, context.Cause(ctx))
		case <-time.After(looks):
		}
	}
}

func deleteReports(ctx context.Context, c client.Client, log *slog.Logger) error {
	var list v1alpha1.NodeReportList
	if err := c.List(ctx, &list); err != nil {
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

// clearNodes takes the batch resources off the nodes that have such.
func clearNodes(ctx context.Context, c client.Client, log *slog.Logger) error {
	var list corev1.NodeList
	if err := c.List(ctx, &list); err != nil {
		return fmt.Errorf("list the nodes: %w", err)
	}
	none := map[corev1.ResourceName]any{}
	for k := range kinds {
		none[k.batch()] = nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"capacity": none, "allocatable": none}})
	if err != nil {
		return err
	}
	cleared := 0
	var errs []error
	for i := range list.Items {
		n := &list.Items[i]
		if !promises(n) {
			continue
		}
		err := c.Status().Patch(ctx, n, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(Owner))
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("take the batch resources off node %s: %w", n.Name, err))
			continue
		}
		cleared++
	}
	log.Info("batch resources taken off", "nodes", cleared)
	return errors.Join(errs...)
}

// promises reports whether a node has batch resources.
func promises(n *corev1.Node) bool {
	for k := range kinds {
		if _, has := n.Status.Capacity[k.batch()]; has {
			return true
		}
		if _, has := n.Status.Allocatable[k.batch()]; has {
			return true
		}
	}
	return false
}
