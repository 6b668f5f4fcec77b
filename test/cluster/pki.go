package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"
)

// makePKI makes the certificate authorities and the certificates and keys of
// the control plane, as pki/NAME.crt and pki/NAME.key.
func (c *Cluster) makePKI() error {
	for _, name := range []string{"ca", "front-ca"} {
		if err := c.sign(name, "", x509.Certificate{
			Subject: pkix.Name{CommonName: "tenon test " + name}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		}); err != nil {
			return err
		}
	}
	client := []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	if err := c.sign("front-proxy", "front-ca", x509.Certificate{Subject: pkix.Name{CommonName: "front-proxy"}, ExtKeyUsage: client}); err != nil {
		return err
	}
	// The certificate must name these addresses, because clients reach the
	// metrics API and the kubelets by address.
	if err := c.signServer("apiserver", "kube-apiserver", serviceIP, "127.0.0.1"); err != nil {
		return err
	}
	if err := c.signServer("metrics", "metrics-server.kube-system.svc", serviceIP); err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := c.writeKey("sa", key); err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	if err := c.writePEM("sa.pub", "PUBLIC KEY", public); err != nil {
		return err
	}
	if _, err := c.User("admin", "system:masters"); err != nil {
		return err
	}
	_, err = c.User("system:kube-scheduler")
	return err
}

// User makes credentials for a user in these groups and returns the path of the
// kubeconfig. The user has the rights that RBAC gives. name and groups can also
// be those of a ServiceAccount.
func (c *Cluster) User(name string, groups ...string) (string, error) {
	file := "user-" + fileName(name)
	if err := c.sign(file, "ca", x509.Certificate{
		Subject:     pkix.Name{CommonName: name, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return "", err
	}
	named := func(kind, name string, value any) []any { return []any{map[string]any{"name": name, kind: value}} }
	text, err := json.MarshalIndent(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"contexts": named("context", "test", map[string]string{"cluster": "test", "user": name}),
		"clusters": named("cluster", "test", map[string]string{"server": Server, "certificate-authority": c.file("pki", "ca.crt")}),
		"users": named("user", name, map[string]string{
			"client-certificate": c.file("pki", file+".crt"), "client-key": c.file("pki", file+".key"),
		}),
	}, "", " ")
	if err != nil {
		return "", err
	}
	path := c.Kubeconfig(name)
	return path, os.WriteFile(path, text, 0o600)
}

// Kubeconfig returns the path of a kubeconfig. user is a user that
// [Cluster.User] made, or admin, who has all rights. The paths and addresses in
// the kubeconfig work inside the cluster. Outside, use [Cluster.Dial].
func (c *Cluster) Kubeconfig(user string) string {
	return c.file("user-" + fileName(user) + ".kubeconfig")
}

func fileName(user string) string {
	name := []byte(user)
	for i, b := range name {
		if b == ':' || b == '/' {
			name[i] = '-'
		}
	}
	return string(name)
}

func (c *Cluster) signServer(file, host string, addresses ...string) error {
	t := x509.Certificate{
		Subject: pkix.Name{CommonName: host}, DNSNames: []string{host, "localhost", "kubernetes.default.svc"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, a := range addresses {
		t.IPAddresses = append(t.IPAddresses, net.ParseIP(a))
	}
	return c.sign(file, "ca", t)
}

// sign makes a key and a certificate. The authority with that file name signs
// the certificate. If authority is empty, it is self-signed.
func (c *Cluster) sign(file, authority string, t x509.Certificate) error {
	err := func() error {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			return err
		}
		if t.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
			return err
		}
		t.NotBefore, t.NotAfter = time.Now().Add(-time.Hour), time.Now().AddDate(1, 0, 0)
		parent, signer := &t, crypto.Signer(key)
		if authority != "" {
			if parent, signer, err = c.authority(authority); err != nil {
				return err
			}
			t.KeyUsage |= x509.KeyUsageDigitalSignature
		}
		der, err := x509.CreateCertificate(rand.Reader, &t, parent, key.Public(), signer)
		if err != nil {
			return err
		}
		if err := c.writeKey(file, key); err != nil {
			return err
		}
		return c.writePEM(file+".crt", "CERTIFICATE", der)
	}()
	if err != nil {
		return fmt.Errorf("make certificate %s: %w", file, err)
	}
	return nil
}

func (c *Cluster) authority(file string) (*x509.Certificate, crypto.Signer, error) {
	var der [2][]byte
	for i, suffix := range []string{".crt", ".key"} {
		text, err := os.ReadFile(c.file("pki", file+suffix))
		if err != nil {
			return nil, nil, err
		}
		block, _ := pem.Decode(text)
		if block == nil {
			return nil, nil, fmt.Errorf("%s%s is not PEM", file, suffix)
		}
		der[i] = block.Bytes
	}
	certificate, err := x509.ParseCertificate(der[0])
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParseECPrivateKey(der[1])
	return certificate, key, err
}

func (c *Cluster) writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return c.writePEM(file+".key", "EC PRIVATE KEY", der)
}

func (c *Cluster) writePEM(file, kind string, der []byte) error {
	return os.WriteFile(c.file("pki", file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
