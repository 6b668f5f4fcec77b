package cluster

import (
	"encoding/json"
	"os"

	"tenon.sh/tenon/test/cluster/pki"
)

func (c *Cluster) pki() pki.Dir { return pki.Dir(c.file("pki")) }

// makePKI makes the certificate authorities and the certificates and keys of
// the control plane, as pki/NAME.crt and pki/NAME.key.
func (c *Cluster) makePKI() error {
	for _, name := range []string{pki.CA, "front-ca"} {
		if err := c.pki().Authority(name); err != nil {
			return err
		}
	}
	if err := c.pki().Client("front-proxy", "front-ca", "front-proxy"); err != nil {
		return err
	}
	// Clients reach the metrics API and the kubelets by address. Therefore the
	// certificates name addresses.
	if err := c.pki().Server("apiserver", "kube-apiserver", controlIP, serviceIP, "127.0.0.1"); err != nil {
		return err
	}
	if err := c.pki().Server("metrics", "metrics-server.kube-system.svc", controlIP); err != nil {
		return err
	}
	if err := c.pki().KeyPair("sa"); err != nil {
		return err
	}
	if _, err := c.User("admin", "system:masters"); err != nil {
		return err
	}
	_, err := c.User("system:kube-scheduler")
	return err
}

// User makes credentials for a user in these groups and returns the path of the
// kubeconfig. RBAC determines the rights of the user. name and groups can also
// be those of a ServiceAccount.
func (c *Cluster) User(name string, groups ...string) (string, error) {
	file := "user-" + fileName(name)
	if err := c.pki().Client(file, pki.CA, name, groups...); err != nil {
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

// Kubeconfig returns the path of the kubeconfig of a user of [Cluster.User], or
// of admin, who has all rights. Its paths and addresses work inside the
// cluster. Outside, use [Cluster.Dial].
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
