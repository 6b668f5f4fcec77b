// Package pki makes the certificate authorities, certificates and keys of a
// test cluster.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// CA is the name of the authority that signs the certificates of servers.
const CA = "ca"

// A Dir is the folder of the files NAME.crt and NAME.key, in PEM.
type Dir string

// Authority makes a self-signed authority.
func (d Dir) Authority(name string) error {
	return d.sign(name, "", x509.Certificate{
		Subject: pkix.Name{CommonName: "tenon test " + name}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	})
}

// Server makes the certificate of a server with this host name and these IP
// addresses.
func (d Dir) Server(file, host string, addresses ...string) error {
	t := x509.Certificate{
		Subject: pkix.Name{CommonName: host}, DNSNames: []string{host, "localhost", "kubernetes.default.svc"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, a := range addresses {
		t.IPAddresses = append(t.IPAddresses, net.ParseIP(a))
	}
	return d.sign(file, CA, t)
}

// Client makes the certificate of a user in these groups.
func (d Dir) Client(file, authority, user string, groups ...string) error {
	return d.sign(file, authority, x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// KeyPair makes the key NAME.key and its public part NAME.pub.
func (d Dir) KeyPair(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	if err := d.writeKey(name, key); err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return err
	}
	return d.writePEM(name+".pub", "PUBLIC KEY", public)
}

// sign makes a key and a certificate. authority is the file name of the authority that signs the
// certificate; if it is empty, the certificate is self-signed.
func (d Dir) sign(file, authority string, t x509.Certificate) error {
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
			if parent, signer, err = d.authority(authority); err != nil {
				return err
			}
			t.KeyUsage |= x509.KeyUsageDigitalSignature
		}
		der, err := x509.CreateCertificate(rand.Reader, &t, parent, key.Public(), signer)
		if err != nil {
			return err
		}
		if err := d.writeKey(file, key); err != nil {
			return err
		}
		return d.writePEM(file+".crt", "CERTIFICATE", der)
	}()
	if err != nil {
		return fmt.Errorf("make certificate %s: %w", file, err)
	}
	return nil
}

func (d Dir) authority(file string) (*x509.Certificate, crypto.Signer, error) {
	var der [2][]byte
	for i, suffix := range []string{".crt", ".key"} {
		text, err := os.ReadFile(filepath.Join(string(d), file+suffix))
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

func (d Dir) writeKey(file string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	return d.writePEM(file+".key", "EC PRIVATE KEY", der)
}

func (d Dir) writePEM(file, kind string, der []byte) error {
	return os.WriteFile(filepath.Join(string(d), file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
}
