package certificate

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// A Serving holds the serving certificate of one replica. Open connections keep
// their certificate when a new one replaces it.
type Serving struct {
	Client client.Reader
	Secret client.ObjectKey
	Log    *slog.Logger

	current atomic.Pointer[tls.Certificate]
	expires atomic.Int64                      // seconds since 1970
	renewal atomic.Int64                      // seconds since 1970
	key     atomic.Pointer[[sha256.Size]byte] // see Seal
}

// Reconcile reads the certificate from the Secret.
func (s *Serving) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	var secret corev1.Secret
	if err := s.Client.Get(ctx, s.Secret, &secret); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err) // the present certificate stays
	}
	next, err := tls.X509KeyPair(secret.Data[KeyServing], secret.Data[KeyServingKey])
	if err != nil {
		s.Log.Warn("the Secret has no certificate to serve with", "secret", s.Secret, "err", err)
		return reconcile.Result{}, nil
	}
	if last := s.current.Load(); last != nil && bytes.Equal(last.Certificate[0], next.Certificate[0]) {
		return reconcile.Result{}, nil
	}
	s.current.Store(&next)
	s.expires.Store(next.Leaf.NotAfter.Unix())
	s.renewal.Store(pair{cert: next.Leaf}.renewalTime().Unix())
	key := sha256.Sum256(slices.Concat([]byte("tenon.sh seal\n"), secret.Data[KeyServingKey]))
	s.key.Store(&key)
	s.Log.Info("serving with a new certificate", "expires", next.Leaf.NotAfter)
	return reconcile.Result{}, nil
}

var errNoCertificate = errors.New("no certificate yet: the replica that leads makes it")

// Certificate returns the certificate for a new connection.
func (s *Serving) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := s.current.Load(); c != nil {
		return c, nil
	}
	return nil, errNoCertificate
}

// Seal returns a code for a text. Only a replica with the present certificate
// can compute it.
func (s *Serving) Seal(text string) string {
	key := s.key.Load()
	if key == nil {
		return ""
	}
	h := hmac.New(sha256.New, key[:])
	h.Write([]byte(text))
	return hex.EncodeToString(h.Sum(nil))
}

// Ready is a readiness check: there is a certificate.
func (s *Serving) Ready(*http.Request) error {
	_, err := s.Certificate(nil)
	return err
}

// Expires is the time at which the certificate expires, in seconds since 1970.
// It is 0 if there is no certificate.
func (s *Serving) Expires() int64 { return s.expires.Load() }

// Renewal is the time from which the replica that leads renews the certificate,
// in seconds since 1970. It is 0 if there is no certificate.
func (s *Serving) Renewal() int64 { return s.renewal.Load() }
