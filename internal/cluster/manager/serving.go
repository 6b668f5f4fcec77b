package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"tenon.sh/tenon/internal/cluster/certificate"
)

// serving holds the serving certificate of this replica. Open connections keep
// their certificate when a new one replaces it.
type serving struct {
	client client.Reader
	name   client.ObjectKey
	log    *slog.Logger

	current atomic.Pointer[tls.Certificate]
	expires atomic.Int64 // seconds since 1970
}

// Reconcile reads the certificate from the Secret.
func (s *serving) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var secret corev1.Secret
	if err := s.client.Get(ctx, s.name, &secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // the present certificate stays
	}
	next, err := tls.X509KeyPair(secret.Data[certificate.KeyServing], secret.Data[certificate.KeyServingKey])
	if err != nil {
		s.log.Warn("the Secret has no certificate to serve with", "secret", s.name, "err", err)
		return reconcile.Result{}, nil
	}
	if last := s.current.Load(); last != nil && bytes.Equal(last.Certificate[0], next.Certificate[0]) {
		return reconcile.Result{}, nil
	}
	s.current.Store(&next)
	s.expires.Store(next.Leaf.NotAfter.Unix())
	s.log.Info("serving with a new certificate", "expires", next.Leaf.NotAfter)
	return reconcile.Result{}, nil
}

var errNoCertificate = errors.New("no certificate yet: the replica that leads makes it")

// certificate returns the certificate for a new connection.
func (s *serving) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	return nil, errNoCertificate
}

// ready is a readiness check: there is a certificate.
func (s *serving) ready(*http.Request) error {
	_, err := s.certificate(nil)
	return err
}

// authority renews the Secret, and writes the CAs into the webhook
// configurations. Only the leader runs it.
type authority struct {
	client client.Client
	secret client.ObjectKey
	hooks  string // name of the webhook configurations
	names  []string
	life   certificate.Lifetimes
	log    *slog.Logger
	now    func() time.Time
}

// Reconcile renews certificates that are due, and writes the CAs into the webhook configurations.
func (a *authority) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var secret corev1.Secret
	err := a.client.Get(ctx, a.secret, &secret)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("read Secret %v: %w", a.secret, err)
	}
	missing := err != nil
	data, done, again, err := certificate.Renewed(secret.Data, a.now(), a.life, a.names)
	if err != nil {
		return reconcile.Result{}, err
	}
	if done != "" {
		next := secret.DeepCopy()
		next.Namespace, next.Name, next.Type, next.Data = a.secret.Namespace, a.secret.Name, corev1.SecretTypeTLS, data
		if missing {
			err = a.client.Create(ctx, next, client.FieldOwner(Owner))
		} else {
			err = a.client.Update(ctx, next, client.FieldOwner(Owner)) // refused if the Secret has changed since it was read
		}
		if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
			return reconcile.Result{RequeueAfter: time.Second}, nil // the cache is older than the Secret
		}
		if err != nil {
			return reconcile.Result{}, fmt.Errorf("write Secret %v: %w", a.secret, err)
		}
		a.log.Info("certificates", "done", done, "secret", a.secret, "again", again)
	}
	if err := errors.Join(a.injectMutating(ctx, data[certificate.KeyCA]), a.injectValidating(ctx, data[certificate.KeyCA])); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: again}, nil
}

func (a *authority) injectMutating(ctx context.Context, ca []byte) error {
	var c admissionv1.MutatingWebhookConfiguration
	if err := a.client.Get(ctx, client.ObjectKey{Name: a.hooks}, &c); err != nil {
		return ignoreMissing(err, "MutatingWebhookConfiguration", a.hooks)
	}
	next := c.DeepCopy()
	for i := range next.Webhooks {
		next.Webhooks[i].ClientConfig.CABundle = ca
	}
	return a.inject(ctx, next, &c, "MutatingWebhookConfiguration")
}

func (a *authority) injectValidating(ctx context.Context, ca []byte) error {
	var c admissionv1.ValidatingWebhookConfiguration
	if err := a.client.Get(ctx, client.ObjectKey{Name: a.hooks}, &c); err != nil {
		return ignoreMissing(err, "ValidatingWebhookConfiguration", a.hooks)
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
func (a *authority) inject(ctx context.Context, next, old client.Object, kind string) error {
	patch := client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{})
	if text, err := client.MergeFrom(old).Data(next); err != nil || string(text) == "{}" {
		return err
	}
	err := a.client.Patch(ctx, next, patch, client.FieldOwner(Owner))
	if apierrors.IsConflict(err) {
		return nil // the watch reports the change, and Reconcile runs again
	}
	if err != nil {
		return fmt.Errorf("write the CA into %s %s: %w", kind, old.GetName(), err)
	}
	a.log.Info("wrote the CA for the API server", "kind", kind, "name", old.GetName())
	return nil
}
