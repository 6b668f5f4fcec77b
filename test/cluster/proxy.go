package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// proxyTable is the nftables table of kube-proxy.
const proxyTable = "kube-proxy"

// StartKubeProxy starts kube-proxy in nftables mode and returns when it has
// written its rules. Then the addresses of services work in the cluster, and
// the ports of NodePort services work at the address of every node. One
// kube-proxy serves all nodes, because they share one network namespace. The
// rules are only in that namespace, and end with it.
//
// Connections that pods already have to 10.0.0.1, the service address of the
// API server, may break. The node must not be [NodeOptions].Bare.
func (n *Node) StartKubeProxy(ctx context.Context) error {
	if _, err := exec.LookPath("nft"); err != nil {
		return fmt.Errorf("kube-proxy needs nft: run scripts/install-deps.sh test: %w", err)
	}
	if _, err := os.Stat(filepath.Join(n.cluster.Bin, "kube-proxy")); err != nil {
		return fmt.Errorf("%w: run make cluster-build", err)
	}
	// kube-proxy's rules see a connection only if the kernel has a route for
	// it. On a real node, this is the default route. On a route to lo, the
	// kernel would not deliver the refusal of a connection.
	if err := n.run(ctx, "ip", "route", "replace", serviceRange, "dev", n.bridge(), "src", n.IP); err != nil {
		return err
	}
	user, err := n.cluster.User("system:kube-proxy") // bound to the role system:node-proxier
	if err != nil {
		return err
	}
	return n.start(ctx, func() error {
		return n.run(ctx, "nft", "list", "map", "ip", proxyTable, "service-ips")
	}, "kube-proxy", "--kubeconfig", user, "--hostname-override", n.Name, "--proxy-mode", "nftables",
		// By default, only the addresses of this node are used.
		"--nodeport-addresses", "0.0.0.0/0",
		// The limit of connections is for the whole machine. These settings
		// leave all limits and timeouts of the kernel unchanged.
		"--conntrack-max-per-core", "0", "--conntrack-tcp-timeout-established", "0", "--conntrack-tcp-timeout-close-wait", "0",
		"--healthz-bind-address", "127.0.0.1:10256", "--metrics-bind-address", "127.0.0.1:10249", "-v=2")
}

// StopKubeProxy kills kube-proxy and removes its rules.
func (n *Node) StopKubeProxy(ctx context.Context) error {
	if err := n.daemon("kube-proxy").kill(ctx); err != nil {
		return err
	}
	if err := n.run(ctx, "kube-proxy", "--cleanup"); err != nil {
		return err
	}
	return n.run(ctx, "ip", "route", "delete", serviceRange, "dev", n.bridge())
}

// run runs a command on the node.
func (n *Node) run(ctx context.Context, name string, args ...string) error {
	if out, err := n.Command(ctx, name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %s %s: %w: %s", n.Name, name, strings.Join(args, " "), err, out)
	}
	return nil
}
