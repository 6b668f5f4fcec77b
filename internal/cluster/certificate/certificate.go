// Package certificate makes and renews the certificates of the webhooks: a CA
// and a serving certificate, in one Secret. The order of its changes keeps
// every connection working.
package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

// These are the keys of the Secret. The type kubernetes.io/tls requires tls.crt
// and tls.key.
const (
	KeyCA         = "ca.crt" // all trusted CAs, the newest first
	KeyCAKey      = "ca.key" // key of the newest CA
	KeyServing    = "tls.crt"
	KeyServingKey = "tls.key"
)

// Lifetimes are the validity periods of certificates. The manager renews a
// certificate after two thirds of its period.
type Lifetimes struct {
	CA, Serving time.Duration
	// Settle is the time after which every API server and every replica knows a
	// change of the Secret. For this time, a new CA signs nothing, and a replaced
	// CA stays trusted.
	Settle time.Duration
}

// DefaultLifetimes are the validity periods of a normal cluster.
var DefaultLifetimes = Lifetimes{CA: 2 * 365 * 24 * time.Hour, Serving: 90 * 24 * time.Hour, Settle: 10 * time.Minute}

// backdate is the maximum delay of a client's clock, compared with the clock of
// the manager that made a certificate.
const backdate = 5 * time.Minute

// A pair is a certificate with its key.
type pair struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// creationTime returns the time at which the certificate was made.
func (p pair) creationTime() time.Time { return p.cert.NotBefore.Add(backdate) }

// renewalTime returns the time at which the manager renews the certificate.
func (p pair) renewalTime() time.Time {
	return p.creationTime().Add(p.cert.NotAfter.Sub(p.creationTime()) * 2 / 3)
}

// A chain is the decoded content of the Secret.
type chain struct {
	ca      pair
	older   []*x509.Certificate // replaced CAs that are still trusted
	serving pair
}

// Renewed returns the data that the Secret should have now. done describes the
// change, and is empty if nothing changes. again is the time of the next check.
// Every connection keeps working: clients trust a CA before it signs, and as
// long as a certificate that it signed is in use.
func Renewed(data map[string][]byte, now time.Time, life Lifetimes, names []string) (next map[string][]byte, done string, again time.Duration, err error) {
	c := parseChain(data, now)
	switch {
	case c.ca.key == nil:
		c.older = append(c.older, c.allCAs()...)
		c.ca, err = newCA(now, life)
		done = "made a CA"
	case !now.Before(c.ca.renewalTime()):
		c.older = append([]*x509.Certificate{c.ca.cert}, c.older...)
		c.ca, err = newCA(now, life)
		done = "made the next CA"
	}
	if err != nil {
		return nil, "", 0, err
	}
	settled := c.ca.creationTime().Add(life.Settle)
	works := c.serving.cert != nil && now.Before(c.serving.cert.NotAfter) && c.verifies(names, now)
	current := works && c.serving.cert.CheckSignatureFrom(c.ca.cert) == nil
	switch {
	case !works, !now.Before(settled) && (!current || !now.Before(c.serving.renewalTime())):
		if c.serving, err = newServing(now, life, c.ca, names); err != nil {
			return nil, "", 0, err
		}
		current, done = true, join(done, "made a serving certificate")
	}
	drop := c.serving.creationTime().Add(life.Settle)
	kept := slices.DeleteFunc(slices.Clone(c.older), func(old *x509.Certificate) bool {
		return now.After(old.NotAfter) || current && !now.Before(drop)
	})
	if len(kept) < len(c.older) {
		c.older, done = kept, join(done, "dropped an old CA")
	}
	at := c.ca.renewalTime()
	for _, t := range []time.Time{c.serving.renewalTime(), settled, drop} {
		if t.After(now) && t.Before(at) {
			at = t
		}
	}
	next, err = c.print()
	return next, done, max(time.Second, at.Sub(now)), err
}

func join(a, b string) string {
	if a == "" {
		return b
	}
	return a + " and " + b
}

// allCAs returns all CAs, beginning with the newest.
func (c chain) allCAs() []*x509.Certificate {
	if c.ca.cert == nil {
		return c.older
	}
	return append([]*x509.Certificate{c.ca.cert}, c.older...)
}

// verifies reports whether a client that trusts the CAs accepts the serving
// certificate for all names.
func (c chain) verifies(names []string, now time.Time) bool {
	roots := x509.NewCertPool()
	for _, ca := range c.allCAs() {
		roots.AddCert(ca)
	}
	for _, name := range names {
		if _, err := c.serving.cert.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now}); err != nil {
			return false
		}
	}
	return true
}

// parseChain decodes the Secret. It drops invalid parts, and the manager then
// makes new ones.
func parseChain(data map[string][]byte, now time.Time) chain {
	var c chain
	cas := parseCerts(data[KeyCA])
	cas = slices.DeleteFunc(cas, func(ca *x509.Certificate) bool { return now.After(ca.NotAfter) || !ca.IsCA })
	key := parseKey(data[KeyCAKey])
	if len(cas) > 0 && key != nil && key.PublicKey.Equal(cas[0].PublicKey) {
		c.ca, c.older = pair{cas[0], key}, cas[1:]
	} else {
		c.older = cas
	}
	serving, key := parseCerts(data[KeyServing]), parseKey(data[KeyServingKey])
	if len(serving) > 0 && key != nil && key.PublicKey.Equal(serving[0].PublicKey) {
		c.serving = pair{serving[0], key}
	}
	return c
}

func parseCerts(text []byte) []*x509.Certificate {
	var all []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all
		}
		if cert, err := x509.ParseCertificate(block.Bytes); err == nil {
			all = append(all, cert)
		}
	}
}

func parseKey(text []byte) *ecdsa.PrivateKey {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil
	}
	return key
}

// print returns the Secret's data.
func (c chain) print() (map[string][]byte, error) {
	var cas bytes.Buffer
	for _, ca := range c.allCAs() {
		cas.Write(printCert(ca))
	}
	caKey, err := printKey(c.ca.key)
	if err != nil {
		return nil, err
	}
	servingKey, err := printKey(c.serving.key)
	if err != nil {
		return nil, err
	}
	return map[string][]byte{KeyCA: cas.Bytes(), KeyCAKey: caKey, KeyServing: printCert(c.serving.cert), KeyServingKey: servingKey}, nil
}

func printCert(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}

func printKey(k *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		return nil, fmt.Errorf("print a key: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), nil
}

// newCA makes a CA that may sign only serving certificates.
func newCA(now time.Time, life Lifetimes) (pair, error) {
	template, key, err := template(now, life.CA, "tenon-manager-ca")
	if err != nil {
		return pair{}, err
	}
	template.IsCA, template.BasicConstraintsValid, template.MaxPathLenZero = true, true, true
	template.KeyUsage = x509.KeyUsageCertSign
	return sign(template, template, key, key)
}

// newServing makes a serving certificate for these DNS names. It expires no
// later than its CA.
func newServing(now time.Time, life Lifetimes, ca pair, names []string) (pair, error) {
	template, key, err := template(now, life.Serving, names[0])
	if err != nil {
		return pair{}, err
	}
	if template.NotAfter.After(ca.cert.NotAfter) {
		template.NotAfter = ca.cert.NotAfter
	}
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	template.KeyUsage, template.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	return sign(template, ca.cert, key, ca.key)
}

func template(now time.Time, life time.Duration, name string) (*x509.Certificate, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("make a key for %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("draw a serial number for %s: %w", name, err)
	}
	return &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: name, SerialNumber: serial.Text(16)},
		NotBefore: now.Add(-backdate).UTC(), NotAfter: now.Add(life).UTC(),
	}, key, nil
}

func sign(c, by *x509.Certificate, key, signer *ecdsa.PrivateKey) (pair, error) {
	der, err := x509.CreateCertificate(rand.Reader, c, by, &key.PublicKey, signer)
	if err != nil {
		return pair{}, fmt.Errorf("sign the certificate of %s: %w", c.Subject.CommonName, err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return pair{}, fmt.Errorf("read the certificate of %s: %w", c.Subject.CommonName, err)
	}
	return pair{cert, key}, nil
}
