package certificate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// An Authority renews the Secret, and writes the CAs into the webhook
// configurations. Only the leader runs it.
type Authority struct {
	Client    client.Client
	Owner     client.FieldOwner // the field manager of what it writes
	Secret    client.ObjectKey
	Hooks     string   // name of the webhook configurations
	Names     []string // DNS names of the service
	Lifetimes Lifetimes
	Log       *slog.Logger
	Now       func() time.Time
}

// Reconcile renews certificates that are due, and writes the CAs into the webhook configurations.
func (a *Authority) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var secret corev1.Secret
	err := a.Client.Get(ctx, a.Secret, &secret)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read Secret %v: %w", a.Secret, err)
	}
	missing := err != nil
	data, done, again, err := Renewed(secret.Data, a.Now(), a.Lifetimes, a.Names)
	if err != nil {
		return reconcile.Result{}, err
	}
	if done != "" {
		next := secret.DeepCopy()
		next.Namespace, next.Name, next.Type, next.Data = a.Secret.Namespace, a.Secret.Name, corev1.SecretTypeTLS, data
		if missing {
			err = a.Client.Create(ctx, next, a.Owner)
		} else {
			err = a.Client.Update(ctx, next, a.Owner) // refused if the Secret has changed since it was read
		}
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return reconcile.Result{RequeueAfter: time.Second}, nil // the cache is older than the Secret
		}
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("write Secret %v: %w", a.Secret, err)
		}
		a.Log.Info("certificates", "done", done, "secret", a.Secret, "again", again)
	}
	if err := errors.Join(a.injectMutating(ctx, data[KeyCA]), a.injectValidating(ctx, data[KeyCA])); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

func (a *Authority) injectMutating(ctx context.Context, ca []byte) error {
	var c admissionv1.MutatingWebhookConfiguration
	if err := a.Client.Get(ctx, client.ObjectKey{Name: a.Hooks}, &c); err != nil {
		return ignoreMissing(err, "MutatingWebhookConfiguration", a.Hooks)
	}
	next := c.DeepCopy()
	for i := range next.Webhooks {
		next.Webhooks[i].ClientConfig.CABundle = ca
	}
	return a.inject(ctx, next, &c, "MutatingWebhookConfiguration")
}

func (a *Authority) injectValidating(ctx context.Context, ca []byte) error {
	var c admissionv1.ValidatingWebhookConfiguration
	if err := a.Client.Get(ctx, client.ObjectKey{Name: a.Hooks}, &c); err != nil {
		return ignoreMissing(err, "ValidatingWebhookConfiguration", a.Hooks)
	}
	next := c.DeepCopy()
	for i := range next.Webhooks {
		next.Webhooks[i].ClientConfig.CABundle = ca
	}
	return a.inject(ctx, next, &c, "ValidatingWebhookConfiguration")
}

// ignoreMissing ignores the error of a missing webhook configuration: it may be
// created later, or there may be no webhooks.
func ignoreMissing(err error, kind, name string) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("read %s %s: %w", kind, name, err)
}

// inject patches a webhook configuration if next differs from old.
func (a *Authority) inject(ctx context.Context, next, old client.Object, kind string) error {
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if text, err := client.MergeFrom(old).Data(next); err != nil || string(text) == "{}" {
		return err
	}
	err := a.Client.Patch(ctx, next, patch, a.Owner)
	if apierrors.IsConflict(err) {
		return nil // the watch reports the change, and Reconcile runs again
	}
	if err != nil {
		return fmt.Errorf("write the CA into %s %s: %w", kind, old.GetName(), err)
	}
	a.Log.Info("wrote the CA for the API server", "kind", kind, "name", old.GetName())
	return nil
}
