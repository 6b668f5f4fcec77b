package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
)

// PrepareNode writes the files of node-i. Another machine, such as a guest of
// test/vm, runs the programs of this node. It needs Bin, the credentials and the
// node's Dir at the same paths. In the network of the cluster, the loopback
// interface gets the address [Node].IP, and a program may forward its ports.
// Forwarded connections have another source, which the node does not refuse.
func (c *Cluster) PrepareNode(ctx context.Context, i int, o NodeOptions) (*Node, error) {
	n := c.Node(i)
	if err := n.configure(o); err != nil {
		return nil, fmt.Errorf("prepare %s: %w", n.Name, err)
	}
	if out, err := c.Command(ctx, "ip", "route", "add", "local", n.IP+"/32", "dev", "lo", "src", controlIP).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("prepare %s: ip route add: %w: %s", n.Name, err, out)
	}
	return n, nil
}

// Start starts a program for the life of the cluster. Its log is log/NAME.log.
func (c *Cluster) Start(name string, argv ...string) error {
	_, err := c.daemon(0, c.file("log", name), argv...)
	return err
}

// ContainerdArgs returns the command line of the node's containerd.
func (n *Node) ContainerdArgs() []string {
	return []string{"containerd", "-c", n.file("containerd.toml")}
}

// KubeletArgs returns the command line of the node's kubelet.
func (n *Node) KubeletArgs() ([]string, error) {
	var extra []string
	text, err := os.ReadFile(n.file("kubelet-args.json"))
	if err == nil {
		err = json.Unmarshal(text, &extra)
	}
	return append([]string{"kubelet",
		"--config", n.file("kubelet.yaml"), "--root-dir", "/var/lib/kubelet",
		"--kubeconfig", n.cluster.Kubeconfig("system:node:" + n.Name), "--hostname-override", n.Name, "--node-ip", n.IP, "-v=2",
	}, extra...), err
}
