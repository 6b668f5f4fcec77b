package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	_ "embed"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// metricsManifest registers the metrics API in the API server.
//
//go:embed metrics.yaml
var metricsManifest string

// startControlPlane starts etcd, the API server, the controller manager and the
// scheduler. It returns when the default service account exists.
func (c *Cluster) startControlPlane(ctx context.Context, o Options) error {
	pki := func(name string) string { return c.file("pki", name) }
	admin := c.Kubeconfig("admin")
	start := func(name string, args ...string) (*daemon, error) {
		return c.daemon(0, c.file("log", name), append([]string{name}, args...)...)
	}
	if _, err := start("etcd", "--name", "test", "--data-dir", c.file("etcd"), "--unsafe-no-fsync", "--log-level", "warn"); err != nil {
		return err
	}
	apiserver, err := start("kube-apiserver", append([]string{
		"--etcd-servers=http://127.0.0.1:2379", "--secure-port=443", "--bind-address=0.0.0.0",
		"--advertise-address=" + controlIP, "--service-cluster-ip-range=" + serviceRange,
		"--tls-cert-file=" + pki("apiserver.crt"), "--tls-private-key-file=" + pki("apiserver.key"), "--client-ca-file=" + pki("ca.crt"),
		"--service-account-key-file=" + pki("sa.pub"), "--service-account-signing-key-file=" + pki("sa.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true",
		"--kubelet-certificate-authority=" + pki("ca.crt"), "--kubelet-client-certificate=" + pki("user-admin.crt"),
		"--kubelet-client-key=" + pki("user-admin.key"), "--kubelet-preferred-address-types=InternalIP",
		// The API server connects to the endpoints of aggregated APIs and
		// webhooks directly, because most test clusters have no kube-proxy.
		"--enable-aggregator-routing=true",
		"--requestheader-client-ca-file=" + pki("front-ca.crt"), "--requestheader-allowed-names=front-proxy",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + pki("front-proxy.crt"), "--proxy-client-key-file=" + pki("front-proxy.key"),
	}, o.APIServer...)...)
	if err != nil {
		return err
	}
	if err := retry(ctx, 60*time.Second, func() error {
		if err := apiserver.checkRunning(); err != nil {
			return err
		}
		_, err := c.Get(ctx, "/readyz")
		return err
	}); err != nil {
		return fmt.Errorf("the API server is not ready: %w", err)
	}
	// The controller manager runs as admin. A service account for each
	// controller would take six seconds.
	if _, err := start("kube-controller-manager", append([]string{
		"--kubeconfig=" + admin, "--authentication-kubeconfig=" + admin, "--authorization-kubeconfig=" + admin,
		"--service-account-private-key-file=" + pki("sa.key"), "--root-ca-file=" + pki("ca.crt"),
		"--cluster-signing-cert-file=" + pki("ca.crt"), "--cluster-signing-key-file=" + pki("ca.key"),
		"--flex-volume-plugin-dir=" + c.file("run", "flexvolume"),
		"--leader-elect=false", "--bind-address=127.0.0.1",
	}, o.Controllers...)...); err != nil {
		return err
	}
	if !o.NoScheduler {
		scheduler := c.Kubeconfig("system:kube-scheduler")
		if _, err := start("kube-scheduler", append([]string{
			"--kubeconfig=" + scheduler, "--authentication-kubeconfig=" + scheduler, "--authorization-kubeconfig=" + scheduler,
			"--leader-elect=false", "--bind-address=127.0.0.1",
		}, o.Scheduler...)...); err != nil {
			return err
		}
	}
	if err := retry(ctx, 60*time.Second, func() error {
		_, err := c.Get(ctx, "/api/v1/namespaces/default/serviceaccounts/default")
		return err
	}); err != nil {
		return fmt.Errorf("the controller manager makes no service account: %w", err)
	}
	authority, err := os.ReadFile(pki("ca.crt"))
	if err != nil {
		return err
	}
	if o.NoMetrics {
		return nil
	}
	manifest := strings.ReplaceAll(metricsManifest, "CA_BUNDLE", base64.StdEncoding.EncodeToString(authority))
	if _, err := c.KubectlApply(ctx, manifest, "apply", "--validate=false", "-f", "-"); err != nil {
		return fmt.Errorf("register the metrics API: %w", err)
	}
	return nil
}

// Get requests a path, such as /readyz, from the API server as admin and
// returns the body of the answer. If the status is not 2xx, it returns an error
// with the body.
func (c *Cluster) Get(ctx context.Context, path string) ([]byte, error) {
	client, err := adminClient(c.Dir)
	if err != nil {
		return nil, err
	}
	transport := client.Transport.(*http.Transport)
	transport.DialContext = c.Dial
	defer transport.CloseIdleConnections()
	return get(ctx, client, Server+path)
}

func get(ctx context.Context, client *http.Client, url string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode/100 != 2 {
		err = fmt.Errorf("get %s: %s: %s", url, answer.Status, body)
	}
	return body, err
}

// adminClient returns an HTTP client for the API server and the kubelets, with
// the rights of admin.
func adminClient(dir string) (*http.Client, error) {
	pair, err := tls.LoadX509KeyPair(dir+"/pki/user-admin.crt", dir+"/pki/user-admin.key")
	authority, err2 := os.ReadFile(dir + "/pki/ca.crt")
	if err := errors.Join(err, err2); err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	return &http.Client{
		Timeout:   scaleLimit(10 * time.Second),
		Transport: &http.Transport{TLSClientConfig: &tls.Config{Certificates: []tls.Certificate{pair}, RootCAs: pool}},
	}, nil
}
