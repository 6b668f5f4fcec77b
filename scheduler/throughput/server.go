package main

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// token is the token of the only user of the API server, which listens on loopback
// and ends with the measurement.
const token = "throughput"

// startServer starts etcd and kube-apiserver from a folder, on loopback, and waits
// until the API server answers. Both end with ctx. stop waits for their end.
func startServer(ctx context.Context, binaries string) (c *rest.Config, stop func(), err error) {
	dir, err := os.MkdirTemp("", "throughput")
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running []*exec.Cmd
	end := func() {
		cancel()
		for _, cmd := range running {
			_ = cmd.Wait() // the process was killed
		}
		_ = os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	ports, err := freePorts(3)
	if err != nil {
		return nil, nil, err
	}
	key := filepath.Join(dir, "accounts.key")
	if err := writeKey(key); err != nil {
		return nil, nil, err
	}
	tokens := filepath.Join(dir, "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		return nil, nil, err
	}
	etcd := fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	for _, args := range [][]string{
		{"etcd", "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", etcd, "--advertise-client-urls", etcd,
			"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default=" + peer, "--unsafe-no-fsync"},
		{"kube-apiserver", "--etcd-servers", etcd, "--bind-address", "127.0.0.1", "--secure-port", fmt.Sprint(ports[2]), "--cert-dir", dir,
			"--service-cluster-ip-range", "10.0.0.0/24", "--token-auth-file", tokens,
			"--service-account-issuer", "https://127.0.0.1", "--service-account-key-file", key, "--service-account-signing-key-file", key,
			// No controller makes accounts here, and no kubelet makes nodes ready.
			"--disable-admission-plugins", "ServiceAccount,TaintNodesByCondition"},
	} {
		cmd := exec.CommandContext(ctx, filepath.Join(binaries, args[0]), args[1:]...)
		log, err := os.Create(filepath.Join(dir, args[0]+".log"))
		if err != nil {
			return nil, nil, err
		}
		cmd.Stdout, cmd.Stderr = log, log
		err = cmd.Start()
		_ = log.Close() // the process has its own descriptor
		if err != nil {
			return nil, nil, fmt.Errorf("-api: start %s: %w", args[0], err)
		}
		running = append(running, cmd)
	}
	c = &rest.Config{BearerToken: token, Host: fmt.Sprintf("https://127.0.0.1:%d", ports[2]), QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		return nil, nil, err
	}
	for range 300 {
		if _, err = client.CoreV1().Namespaces().Get(ctx, "default", metav1.GetOptions{}); err == nil {
			return c, end, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil, nil, fmt.Errorf("-api: the API server does not answer after a minute: %w", err)
}

// freePorts returns free TCP ports of loopback.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all are open until the last one is known, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// writeKey writes a private key for the tokens of service accounts.
func writeKey(file string) error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})
	if text == nil {
		return errors.New("encode the key of service accounts")
	}
	return os.WriteFile(file, text, 0o600)
}
