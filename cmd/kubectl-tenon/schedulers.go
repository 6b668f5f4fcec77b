package main

import (
	"context"
	"fmt"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/internal/cluster/schedulers"
)

// maxEvents is the maximum number of events that are read for a scheduler. A
// single event shows that the scheduler has run lately.
const maxEvents = 500

// pendingPods lists the pods without a node.
func pendingPods(ctx context.Context, c client.Client) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := c.List(ctx, &pods, client.MatchingFields{"spec.nodeName": ""})
	return pods.Items, err
}

// namesByUID returns the namespaces and names of all pods, by UID.
func namesByUID(ctx context.Context, c client.Client) (map[string]string, error) {
	var pods corev1.PodList
	if err := c.List(ctx, &pods); err != nil {
		return nil, err
	}
	names := map[string]string{}
	for _, p := range pods.Items {
		names[string(p.UID)] = p.Namespace + "/" + p.Name
	}
	return names, nil
}

// schedulersOf reads the Leases and events of schedulers.
func schedulersOf(ctx context.Context, c client.Client, names []string, now time.Time) []schedulers.Scheduler {
	var all []schedulers.Scheduler
	for _, name := range names {
		all = append(all, schedulerOf(ctx, c, name, now))
	}
	return all
}

// managerAbsence describes why tenon-manager does not run, or why this is not
// known. Both are empty if it runs.
func managerAbsence(ctx context.Context, c client.Client, now time.Time) (absent, unknown string) {
	s := managerLease(ctx, c)
	switch state, text := s.State(now); state {
	case schedulers.Stopped:
		return schedulers.Manager + " " + text, ""
	case schedulers.Unseen:
		return "", "no Lease has its name, which it has unless it runs without the election of a leader (--leader-elect=false)"
	}
	return "", s.Unknown(now)
}

// managerHome returns the namespace of tenon-manager: the one to which the API server
// sends what the webhooks answer. A user who may only edit a namespace cannot change it.
// The result is "" if there is no such webhook, or if it may not be read.
func managerHome(ctx context.Context, c client.Client) string {
	hooks, err := managerWebhooks(ctx, c)
	if err != nil {
		return "" // then the Leases of all namespaces count
	}
	return serviceNamespace(hooks)
}

// managerWebhooks reads the validating webhooks of tenon-manager.
func managerWebhooks(ctx context.Context, c client.Client) ([]admissionv1.ValidatingWebhook, error) {
	var v admissionv1.ValidatingWebhookConfiguration
	err := c.Get(ctx, client.ObjectKey{Name: schedulers.Manager}, &v)
	return v.Webhooks, err
}

// serviceNamespace returns the namespace of the service that answers webhooks, or "".
func serviceNamespace(hooks []admissionv1.ValidatingWebhook) string {
	for _, hook := range hooks {
		if hook.ClientConfig.Service != nil {
			return hook.ClientConfig.Service.Namespace
		}
	}
	return ""
}

// managerLease reads the Lease of tenon-manager. Everybody who may write Leases in some
// namespace can make one of its name there, so only that of its own namespace counts, if
// this is known.
func managerLease(ctx context.Context, c client.Client) schedulers.Scheduler {
	return leasesOf(ctx, c, schedulers.Manager, client.InNamespace(managerHome(ctx, c)))
}

// leasesOf reads the Leases with the name of a scheduler.
func leasesOf(ctx context.Context, c client.Client, name string, in ...client.ListOption) schedulers.Scheduler {
	s := schedulers.Scheduler{Name: name}
	var leases coordinationv1.LeaseList
	if err := c.List(ctx, &leases, append(in, client.MatchingFields{"metadata.name": schedulers.LeaseName(name)})...); err != nil {
		s.Unread = append(s.Unread, unreadText("Leases", err))
	}
	for _, l := range leases.Items {
		of := schedulers.Lease{Namespace: l.Namespace, Name: l.Name}
		if l.Spec.HolderIdentity != nil {
			of.Holder = *l.Spec.HolderIdentity
		}
		if l.Spec.RenewTime != nil {
			of.Renewed = l.Spec.RenewTime.Time
		}
		if l.Spec.LeaseDurationSeconds != nil {
			of.Duration = time.Duration(*l.Spec.LeaseDurationSeconds) * time.Second
		}
		s.Leases = append(s.Leases, of)
	}
	return s
}

// schedulerOf reads the Leases with the name of a scheduler. If they do not
// show that it runs, it also reads its events.
func schedulerOf(ctx context.Context, c client.Client, name string, now time.Time) schedulers.Scheduler {
	s := leasesOf(ctx, c, name)
	if !s.NeedsEvents(now) {
		return s
	}
	var events corev1.EventList
	if err := c.List(ctx, &events, client.MatchingFields{"source": name}, client.Limit(maxEvents)); err != nil {
		s.Unread = append(s.Unread, unreadText("events", err))
	}
	for i := range events.Items {
		if at := schedulers.TimeOf(&events.Items[i]); at.After(s.Spoke) {
			s.Spoke = at
		}
	}
	return s
}

// unreadText explains why objects could not be listed.
func unreadText(what string, err error) string {
	if apierrors.IsForbidden(err) {
		return "you may not list " + what
	}
	return fmt.Sprintf("%s cannot be listed (%v)", what, err)
}

// seen reads what the API server knows about a pod that waits.
func (a *access) seen(ctx context.Context, p *corev1.Pod, now time.Time) (schedulers.Seen, error) {
	c, err := a.client()
	if err != nil {
		return schedulers.Seen{}, err
	}
	s := schedulers.Seen{Scheduler: schedulerOf(ctx, c, schedulers.Of(p), now)}
	var events corev1.EventList
	if err := c.List(ctx, &events, client.InNamespace(p.Namespace), client.MatchingFields{"involvedObject.uid": string(p.UID)}); err != nil {
		s.Unread = unreadText("events", err)
	}
	s.Events = events.Items
	return s, nil
}
