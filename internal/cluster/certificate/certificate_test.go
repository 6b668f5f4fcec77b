package certificate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var shortLives = Lifetimes{CA: 300 * time.Second, Serving: 60 * time.Second, Settle: 10 * time.Second}

var hookNames = []string{"tenon-manager.tenon-system.svc", "tenon-manager.tenon-system.svc.cluster.local"}

// accepts connects a client to a server, and returns the error of the client.
// The client trusts the CAs in one version of the Secret. The server has the
// certificate in another version.
func accepts(t *testing.T, trusted, served map[string][]byte, now time.Time) error {
	t.Helper()
	p, err := tls.X509KeyPair(served[KeyServing], served[KeyServingKey])
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(trusted[KeyCA]) {
		t.Fatalf("cannot read the CAs: %s", trusted[KeyCA])
	}
	_, err = p.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: hookNames[0], CurrentTime: now})
	return err
}

// TestNoCallFailsWhileCertificatesAreRenewed simulates an hour in steps of one
// second. Each replica and each API server sees a change up to 9 seconds late.
func TestNoCallFailsWhileCertificatesAreRenewed(t *testing.T) {
	var history []map[string][]byte
	var data map[string][]byte
	next := epoch
	done := map[string]int{}
	for now := epoch; now.Before(epoch.Add(time.Hour)); now = now.Add(time.Second) {
		if !now.Before(next) {
			fresh, what, again, err := Renewed(data, now, shortLives, hookNames)
			if err != nil {
				t.Fatal(err)
			}
			data, next = fresh, now.Add(again)
			done[what]++
		}
		history = append(history, data)
		late := history[max(0, len(history)-10)]
		for _, pairs := range [][2]map[string][]byte{{data, data}, {late, data}, {data, late}} {
			if err := accepts(t, pairs[0], pairs[1], now); err != nil {
				t.Fatalf("after %v: %v", now.Sub(epoch), err)
			}
		}
	}
	if done["made the next CA"] < 10 || done["made a serving certificate"] < 60 || done["dropped an old CA"] < 10 {
		t.Errorf("too little happened: %v", done)
	}
}

func TestASecretThatCannotBeReadIsMadeAnew(t *testing.T) {
	good, _, _, err := Renewed(nil, epoch, shortLives, hookNames)
	if err != nil {
		t.Fatal(err)
	}
	other, _, _, _ := Renewed(nil, epoch, shortLives, hookNames)
	for name, change := range map[string]func(map[string][]byte){
		"nothing in it":             func(d map[string][]byte) { clear(d) },
		"no CA":                     func(d map[string][]byte) { delete(d, KeyCA) },
		"no key of the CA":          func(d map[string][]byte) { d[KeyCAKey] = []byte("x") },
		"another's key":             func(d map[string][]byte) { d[KeyCAKey] = other[KeyCAKey] },
		"no certificate":            func(d map[string][]byte) { delete(d, KeyServing) },
		"another's certificate":     func(d map[string][]byte) { d[KeyServing], d[KeyServingKey] = other[KeyServing], other[KeyServingKey] },
		"a key that does not match": func(d map[string][]byte) { d[KeyServingKey] = other[KeyServingKey] },
	} {
		broken := map[string][]byte{}
		for k, v := range good {
			broken[k] = v
		}
		change(broken)
		data, done, _, err := Renewed(broken, epoch.Add(time.Second), shortLives, hookNames)
		if err != nil || !strings.Contains(done, "made a") {
			t.Errorf("%s: %q, %v", name, done, err)
			continue
		}
		if err := accepts(t, data, data, epoch.Add(time.Second)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, done, again, _ := Renewed(good, epoch.Add(time.Second), shortLives, hookNames); done != "" || again <= 0 {
		t.Errorf("a valid certificate is Renewed: %q", done)
	}
	if _, done, _, _ := Renewed(good, epoch.Add(15*time.Second), shortLives, []string{"other.example"}); done != "made a serving certificate" {
		t.Errorf("another name: %q", done)
	}
}

// TestARenewalIsDueAfterTwoThirdsOfTheLife checks the times that a replica shows.
func TestARenewalIsDueAfterTwoThirdsOfTheLife(t *testing.T) {
	now := time.Now()
	data, _, _, err := Renewed(nil, now, DefaultLifetimes, hookNames)
	if err != nil {
		t.Fatal(err)
	}
	s := &Serving{Secret: client.ObjectKey{Name: "s", Namespace: "n"}, Log: slog.New(slog.DiscardHandler), Client: oneSecret{data}}
	if s.Renewal() != 0 || s.Expires() != 0 {
		t.Error("there are times without a certificate")
	}
	if _, err := s.Reconcile(t.Context(), reconcile.Request{}); err != nil {
		t.Fatal(err)
	}
	expires, renewal := time.Unix(s.Expires(), 0).Sub(now), time.Unix(s.Renewal(), 0).Sub(now)
	if (expires-90*24*time.Hour).Abs() > time.Minute || (renewal-60*24*time.Hour).Abs() > time.Minute {
		t.Errorf("it expires after %v, and is renewed after %v", expires, renewal)
	}
}

// oneSecret is a client of a cluster with one Secret.
type oneSecret struct{ data map[string][]byte }

func (o oneSecret) Get(_ context.Context, _ client.ObjectKey, to client.Object, _ ...client.GetOption) error {
	to.(*corev1.Secret).Data = o.data
	return nil
}

func (o oneSecret) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func FuzzSecret(f *testing.F) {
	good, _, _, _ := Renewed(nil, epoch, shortLives, hookNames)
	f.Add(good[KeyCA], good[KeyCAKey], good[KeyServing], good[KeyServingKey])
	f.Fuzz(func(t *testing.T, ca, caKey, crt, key []byte) {
		data, _, again, err := Renewed(map[string][]byte{KeyCA: ca, KeyCAKey: caKey, KeyServing: crt, KeyServingKey: key}, epoch, shortLives, hookNames)
		if err != nil || again <= 0 {
			t.Fatalf("%v, again %v", err, again)
		}
		if err := accepts(t, data, data, epoch); err != nil {
			t.Fatal(err)
		}
	})
}
