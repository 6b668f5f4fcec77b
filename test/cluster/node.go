package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"tenon.sh/tenon/test/cluster/cri"
	"tenon.sh/tenon/test/cluster/image"
)

// NodeOptions configure a node.
type NodeOptions struct {
	// Kubelet is additional KubeletConfiguration: lines of YAML at the top
	// level, such as "cpuManagerPolicy: static". It must not repeat a key that
	// the cluster sets.
	Kubelet string
	// KubeletArgs are additional arguments of the kubelet.
	KubeletArgs []string
	// NoNRI disables the node resource interface of containerd.
	NoNRI bool
	// Bare is for a kernel without bridges and overlay file systems. A pod then
	// has the host's network or only its own loopback, and each container has a
	// copy of its image.
	Bare bool
	// Registry is the address of the cluster's registry for a node elsewhere.
	Registry string
	// KubeProxy means that kube-proxy runs on the node: see
	// [Node.StartKubeProxy].
	KubeProxy bool
}

// A Node is a node of a cluster. [Node.Command] enters its mount namespace,
// where paths are the same as on a real node: /run/containerd/containerd.sock,
// /run/nri/nri.sock, /var/lib/kubelet, /var/log/pods. Outside this namespace,
// the folder /run of the node is Dir/run.
type Node struct {
	Name string
	// IP is the node's address. The kubelet listens there on port 10250.
	IP string
	// CgroupRoot is the kubelet's cgroupRoot, for example /testbed-dev-0, and / with
	// the cgroup driver systemd.
	CgroupRoot string
	// Dir holds the node's state and logs.
	Dir string

	cluster *Cluster
	index   int
}

// Node returns the node with this number, whether it exists or not.
func (c *Cluster) Node(i int) *Node {
	n := &Node{cluster: c, index: i, Name: fmt.Sprintf("node-%d", i), IP: fmt.Sprintf("10.88.%d.1", i)}
	n.CgroupRoot = "/" + groupPrefix(c.Name) + strconv.Itoa(i)
	if c.Systemd {
		n.CgroupRoot = "/"
	}
	n.Dir = c.file(n.Name)
	return n
}

// AddNode starts node-i and returns when the node is Ready. i is 0 to 254,
// because the control plane has the addresses of node 255.
func (c *Cluster) AddNode(ctx context.Context, i int, o NodeOptions) (*Node, error) {
	begun, n := time.Now(), c.Node(i)
	fail := func(err error) (*Node, error) { return nil, fmt.Errorf("start %s: %w", n.Name, err) }
	switch {
	case !c.Systemd:
		if err := makeGroups(n.CgroupRoot); err != nil {
			return fail(err)
		}
	case i != 0:
		return fail(errors.New("the cgroups of the pods of all nodes would be the same: a cluster with systemd has node-0 only"))
	}
	if err := n.configure(o); err != nil {
		return fail(err)
	}
	link := n.bridge()
	if o.Bare {
		link = "lo"
	}
	holder, err := c.daemon(0, n.file("holder"), "unshare", "-m", "--propagation", "slave",
		"sh", "-ec", setup, "setup", n.Dir, link, n.IP, n.mac())
	if err != nil {
		return fail(err)
	}
	if err := retry(ctx, 10*time.Second, func() error {
		if err := holder.checkRunning(); err != nil {
			return err
		}
		_, err := os.Stat(n.file("furnished"))
		return err
	}); err != nil {
		return fail(err)
	}
	if err := n.StartContainerd(ctx); err != nil {
		return fail(err)
	}
	if err := n.StartKubelet(ctx); err != nil {
		return fail(err)
	}
	if err := n.AwaitReady(ctx); err != nil {
		return fail(err)
	}
	if o.KubeProxy {
		if err := n.StartKubeProxy(ctx); err != nil {
			return fail(err)
		}
	}
	c.log("%s in %.1f s", n.Name, time.Since(begun).Seconds())
	return n, nil
}

// setup is a script that runs in the node's mount namespace. Its arguments are
// the folder, the interface (a bridge to make, or lo), its IP address, and the
// MAC address of the bridge. Without a fixed MAC address, a bridge takes the
// lowest address of its ports, which changes with each new pod. The pods then
// cannot reach their gateway until they look up its address again. The kubelet
// requires three kernel settings. setup mounts files with these values over the
// settings, so that the machine keeps its own values. The node has a /run of its
// own, but for the folder of systemd, if the cluster has it (furnish). The last
// process of the script keeps the namespace alive.
const setup = `
mount --make-rshared /
setting() { echo $2 >$1.setting; mount --bind $1.setting /proc/sys/$3; }
setting $1/overcommit 1 vm/overcommit_memory
setting $1/panic 10 kernel/panic
setting $1/oops 1 kernel/panic_on_oops
bind=--bind
if [ -d /run/systemd ]; then
	mkdir -p $1/run/systemd
	mount --bind /run/systemd $1/run/systemd
	bind=--rbind
fi
for pair in kubelet:/var/lib/kubelet containerd:/var/lib/containerd run:/run varlog:/var/log; do
	mkdir -p $1/${pair%%:*}
	mount $bind $1/${pair%%:*} ${pair#*:}
	mount --make-shared ${pair#*:}
done
[ $2 = lo ] || ip link add $2 address $4 type bridge
ip address add $3/24 dev $2
ip link set $2 up
touch $1/furnished
exec sleep infinity
`

// bridge returns the name of the bridge of a node that is not Bare.
func (n *Node) bridge() string { return fmt.Sprintf("tenon%d", n.index) }

// mac returns the MAC address of the node's bridge, a locally administered address.
func (n *Node) mac() string { return fmt.Sprintf("02:54:0a:58:%02x:01", n.index) }

func (n *Node) file(name string) string { return filepath.Join(n.Dir, name) }

func (n *Node) daemon(name string) *daemon { return &daemon{n.cluster, n.file(name)} }

// Command returns a command as [Cluster.Command] does, but in the node's mount
// namespace and with NODE_NAME set. It sees what a pod in all host namespaces
// of the node sees.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	holder, err := n.daemon("holder").pid()
	cmd := n.cluster.commandInside(ctx, holder, name, args...)
	if err != nil {
		cmd.Err = fmt.Errorf("%s is not there: %w", n.Name, err)
	}
	cmd.Env = append(cmd.Env, "NODE_NAME="+n.Name)
	return cmd
}

// Cgroup returns the directory, on this machine, of a control group of the
// node, for example ("cpu", "kubepods/besteffort"). The names are those of the
// cgroup driver cgroupfs, whichever driver the node has. They may contain the
// patterns of path/filepath.
func (n *Node) Cgroup(controller, group string) string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		controller = ""
	}
	at := filepath.Join(n.CgroupRoot, group)
	if n.cluster.Systemd {
		at = unitPath(group)
	}
	return filepath.Join("/sys/fs/cgroup", controller, at)
}

// StartContainerd starts containerd and returns when it answers the kubelet.
func (n *Node) StartContainerd(ctx context.Context) error {
	return n.start(ctx, func() error { return cri.Check(ctx, n.file("run/containerd/containerd.sock")) }, n.ContainerdArgs()...)
}

// StartKubelet starts the kubelet and returns when it is healthy.
func (n *Node) StartKubelet(ctx context.Context) error {
	argv, err := n.KubeletArgs()
	if err != nil {
		return err
	}
	client, err := adminClient(n.cluster.Dir)
	if err != nil {
		return err
	}
	n.dialThrough(client)
	return n.start(ctx, func() error {
		_, err := get(ctx, client, fmt.Sprintf("https://%s:10250/healthz", n.IP))
		return err
	}, argv...)
}

// StopKubelet kills the kubelet with SIGKILL, as if it had crashed. Pods and
// containers keep running.
func (n *Node) StopKubelet(ctx context.Context) error { return n.daemon("kubelet").kill(ctx) }

// StopContainerd kills containerd with SIGKILL, as if it had crashed.
// Containers keep running.
func (n *Node) StopContainerd(ctx context.Context) error { return n.daemon("containerd").kill(ctx) }

// AwaitReady waits until the node's condition Ready is true, and the kubelet
// has reported it since AwaitReady was called.
func (n *Node) AwaitReady(ctx context.Context) error {
	since := time.Now().Truncate(time.Second)
	return retry(ctx, 60*time.Second, func() error {
		text, err := n.cluster.Get(ctx, "/api/v1/nodes/"+n.Name)
		if err != nil {
			return fmt.Errorf("%w: %s", err, tail(n.file("kubelet.log")))
		}
		var node struct {
			Status struct {
				Conditions []struct {
					Type, Status, Message string
					LastHeartbeatTime     time.Time
				}
			}
			Spec struct{ Taints []struct{ Key string } }
		}
		if err := json.Unmarshal(text, &node); err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type != "Ready" {
				continue
			}
			if condition.Status != "True" || condition.LastHeartbeatTime.Before(since) {
				return fmt.Errorf("%s is not ready: %s", n.Name, condition.Message)
			}
			if len(node.Spec.Taints) > 0 {
				return fmt.Errorf("%s has the taint %s", n.Name, node.Spec.Taints[0].Key)
			}
			return nil
		}
		return errors.New("the node says nothing about being ready")
	})
}

// start starts a program of the node and waits until it answers.
func (n *Node) start(ctx context.Context, answers func() error, argv ...string) error {
	holder, err := n.daemon("holder").pid()
	if err != nil {
		return fmt.Errorf("%s is not there: %w", n.Name, err)
	}
	d, err := n.cluster.daemon(holder, n.file(argv[0]), argv...)
	if err != nil {
		return err
	}
	return retry(ctx, 30*time.Second, func() error {
		if err := d.checkRunning(); err != nil {
			return fmt.Errorf("%s: %w", n.Name, err)
		}
		return answers()
	})
}

// AddImage adds the image in an OCI archive to the cluster's registry. name is
// its full name, for example docker.io/library/tenond:dev.
func (c *Cluster) AddImage(archive, name string) error {
	return c.Images().Import(archive, name)
}

// Images are the images that were added to the cluster's registry.
func (c *Cluster) Images() image.Layout { return image.Layout{Dir: c.file("images")} }
