package kubelet

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// ownCertificates are the files below the kubelet's root directory with the
// certificate that it serves: one that it has signed itself, and one that the
// cluster has signed for it (serverTLSBootstrap). cmd/kubelet/app/server.go and
// pkg/kubelet/certificate write them.
var ownCertificates = []string{"pki/kubelet.crt", "pki/kubelet-server-current.pem"}

// errStranger means that the server at the kubelet's address is not known to be the
// kubelet.
var errStranger = errors.New("this may be another server")

// clientFor returns an HTTP client that sends the credentials in config, if the
// server is the kubelet: if the authorities in config have signed its certificate,
// or if the certificate is in the root directory, where only root can put it.
func clientFor(config *rest.Config, root string) (*http.Client, error) {
	if config.Insecure {
		return rest.HTTPClientFor(config)
	}
	check, err := rest.TLSConfigFor(config)
	if err != nil {
		return nil, err
	}
	if check == nil {
		check = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	address, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	authorities, host := check.RootCAs, address.Hostname()
	check.InsecureSkipVerify = true // VerifyConnection verifies instead
	check.VerifyConnection = func(s tls.ConnectionState) error { return verify(s, host, authorities, root) }
	transport := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: check, Proxy: config.Proxy})
	wrapped, err := rest.HTTPWrappersForConfig(config, transport)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: wrapped, Timeout: config.Timeout}, nil
}

// verify returns nil if the server of a connection is the kubelet at host. The
// state of the connection has no name of the host if that is an address.
func verify(s tls.ConnectionState, host string, authorities *x509.CertPool, root string) error {
	if len(s.PeerCertificates) == 0 {
		return fmt.Errorf("the kubelet has no certificate: %w", errStranger)
	}
	leaf, between := s.PeerCertificates[0], x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: authorities, Intermediates: between, DNSName: host})
	if err == nil {
		return nil
	}
	if root == "" {
		return fmt.Errorf("check the certificate of the kubelet: %w: %w: name its authorities (--kubelet-ca) or do not check it (--kubelet-insecure)", err, errStranger)
	}
	own, wrong := readOwn(root)
	for _, c := range own {
		if bytes.Equal(c, leaf.Raw) {
			return nil
		}
	}
	return errors.Join(fmt.Errorf("check the certificate of the kubelet: %w: %w: it is not in %s either; name its authorities (--kubelet-ca) or do not check it (--kubelet-insecure)",
		err, errStranger, filepath.Join(root, strings.Join(ownCertificates, " or "))), wrong)
}

// readOwn reads the certificates in the files of the kubelet. Files that do not
// exist have none.
func readOwn(root string) (all [][]byte, wrong error) {
	for _, name := range ownCertificates {
		text, err := os.ReadFile(filepath.Join(root, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			wrong = errors.Join(wrong, fmt.Errorf("read the kubelet's own certificate: %w", err))
			continue
		}
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if block.Type == "CERTIFICATE" {
				all = append(all, block.Bytes)
			}
		}
	}
	return all, wrong
}
