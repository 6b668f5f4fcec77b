package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/test/cluster"
	"tenon.sh/tenon/test/cluster/image"
)

// A guestNode is the only node of a cluster: a kubelet, containerd and tenond in
// a guest. The control plane runs on this machine, because all programs of a
// guest share one CPU of the host. It has tenon-scheduler in place of
// kube-scheduler. The guest can reach only the control plane.
type guestNode struct {
	t       *testing.T
	c       *cluster.Cluster
	n       *cluster.Node
	machine chan error // receives the end of the guest
}

const (
	guestGateway = "10.88.0.254" // an address of the control plane, as the guest sees it
	guestShell   = 2222          // port of the guest where each connection gets a shell
)

// inPlaceOfKubeScheduler is the configuration of docs/scheduler.md. The clock of
// a busy guest is slow, so the scheduler waits longer for a report.
const inPlaceOfKubeScheduler = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: false}
clientConnection: {kubeconfig: KUBECONFIG, qps: 5000, burst: 10000}
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint: {enabled: [{name: TenonCPUs, weight: 5}]}
      bind: {enabled: [{name: TenonCPUs}]}
    pluginConfig:
      - name: TenonCPUs
        args: {staleAfter: 1h}
`

// startGuestNode starts the cluster and boots the machine. It returns when the
// node is ready and tenond has reported its CPUs. The guest ends after limit.
func startGuestNode(t *testing.T, name string, m Machine, limit time.Duration) *guestNode {
	t.Helper()
	if err := cluster.Missing(); err != nil {
		missing(t, "%v", err)
	}
	g := &guestNode{t: t, machine: make(chan error, 1)}
	agent := g.startControlPlane(name)
	m.Disk = g.disk()
	m.Network = &Network{Namespace: fmt.Sprintf("/proc/%d/ns/net", g.c.Init), Subnet: "10.88.0.0/24", Gateway: guestGateway, Guest: g.n.IP, Ports: []int{10250, guestShell}}
	g.boot(m, limit)
	g.soon(10*time.Minute, "the node is ready", func() error {
		var node corev1.Node
		if err := g.get("/api/v1/nodes/"+g.n.Name, &node); err != nil {
			return err
		}
		for _, c := range node.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue && len(node.Spec.Taints) == 0 {
				return nil
			}
		}
		return fmt.Errorf("it has the taints %v and the conditions %v", node.Spec.Taints, node.Status.Conditions)
	})
	g.sh(fmt.Sprintf(`GOMAXPROCS=2 setsid tenond --kubernetes --node-name %s --kubeconfig %s --kubelet https://%s:10250 --kubelet-ca %s/pki/ca.crt \
		--config-map koordinator-system/slo-controller-config --config /none.yaml --state-dir /run/tenon --metrics 127.0.0.1:9909 --log-level debug </dev/null >/var/log/tenond.log 2>&1 &`, g.n.Name, agent, g.n.IP, g.c.Dir))
	g.soon(5*time.Minute, "tenond reports the CPUs of the node", func() error {
		var report struct {
			Status struct{ CPUs *struct{ Cores string } }
		}
		err := g.get("/apis/tenon.sh/v1alpha1/nodereports/"+g.n.Name, &report)
		if err == nil && report.Status.CPUs == nil {
			err = errors.New("it reports none")
		}
		return err
	})
	return g
}

// startControlPlane starts the part of the cluster on this machine, and prepares
// the node. It returns the kubeconfig of tenond.
func (g *guestNode) startControlPlane(name string) (agent string) {
	t := g.t
	t.Helper()
	if out, err := exec.Command("make", "--no-print-directory", "-C", "../..", "scheduler-build").CombinedOutput(); err != nil {
		t.Fatalf("make scheduler-build: %v\n%s", err, out)
	}
	scheduler, err := filepath.Abs("../../bin/tenon-scheduler")
	must(t, err)
	small, err := image.BuildSmall(t.Context(), t.TempDir())
	must(t, err)
	g.c, err = cluster.Up(t.Context(), cluster.Options{
		Name: name, Images: small.Dir, NoScheduler: true, NoMetrics: true, Log: t.Logf,
		// The clock of a busy guest is slow, and its kubelet with it.
		Controllers: []string{"--node-monitor-grace-period=1h"},
	})
	must(t, err)
	t.Cleanup(func() {
		if err := g.c.Down(); err != nil {
			t.Error(err)
		}
	})
	must(t, g.c.Images().AddPublished(build(t, []string{"build"}, "./test/cluster/seeds")))
	must(t, g.c.Images().AddPublishedNGINX())
	g.kubectl("apply", "--validate=false", "-f", "../../deploy/crds/tenon.sh_nodereports.yaml", "-f", "../cluster/testdata/tenond.yaml")
	g.soon(time.Minute, "the API server serves reports", func() error {
		return g.get("/apis/tenon.sh/v1alpha1/nodereports", new(any))
	})
	config := filepath.Join(g.c.Dir, "scheduler.yaml")
	must(t, os.WriteFile(config, []byte(strings.Replace(inPlaceOfKubeScheduler, "KUBECONFIG", g.c.Kubeconfig("admin"), 1)), 0o644))
	must(t, g.c.Start("tenon-scheduler", scheduler, "--config="+config, "--bind-address=127.0.0.1", "--v=2"))
	agent, err = g.c.User("system:serviceaccount:tenon-system:tenond", "system:serviceaccounts", "system:serviceaccounts:tenon-system")
	must(t, err)
	g.n, err = g.c.PrepareNode(t.Context(), 0, cluster.NodeOptions{Bare: true, Registry: guestGateway + ":5000"})
	must(t, err)
	return agent
}

// disk makes the disk of the node. The files of the cluster have the same paths
// as on this machine.
func (g *guestNode) disk() string {
	t := g.t
	t.Helper()
	root := nodeRoot(t, g.c.Bin, func(name string) bool {
		return name == "kubelet" || name == "containerd" || name == "runc" || strings.HasPrefix(name, "containerd-shim")
	})
	for _, name := range []string{"tenon", "tenond"} {
		must(t, root.File("/usr/bin/"+name, build(t, []string{"build"}, "./cmd/"+name)))
	}
	credentials, err := filepath.Glob(filepath.Join(g.c.Dir, "*.kubeconfig"))
	must(t, err)
	for _, file := range credentials {
		must(t, root.File(file, file))
	}
	must(t, root.Tree(g.c.Dir+"/pki", g.c.Dir+"/pki"))
	must(t, root.Tree(g.n.Dir, g.n.Dir))
	root.Dir(g.n.Dir + "/manifests")
	kubelet, err := g.n.KubeletArgs()
	must(t, err)
	root.put("/shell", file{mode: 0o755, content: []byte("#!/bin/sh\nexec sh 2>&1\n")})
	root.Text("/node.sh", strings.NewReplacer("GUEST", g.n.IP, "GATEWAY", guestGateway, "PORT", fmt.Sprint(guestShell), "ROOT", g.n.CgroupRoot, "BIN", g.c.Bin,
		"CONTAINERD", strings.Join(g.n.ContainerdArgs(), " "), "KUBELET", strings.Join(kubelet, " ")).Replace(nodeScript))
	return makeDisk(t, root)
}

// nodeScript runs in the guest until the file /end exists.
const nodeScript = `
/bin/busybox --install -s /bin
mount --make-rshared / || exit
ip link set eth0 up && ip address add GUEST/24 dev eth0 && ip route add default via GATEWAY || exit
mkdir /sys/fs/cgroup/ROOT || exit
for at in /sys/fs/cgroup /sys/fs/cgroup/ROOT; do
	for c in $(cat $at/cgroup.controllers); do echo +$c >$at/cgroup.subtree_control; done
done
export PATH=BIN:$PATH
nc -ll -p PORT -e /shell &
# All CPUs share one stream of instructions, so more threads would only search
# for work. Memory is plentiful, and CPU time is not.
export GOMAXPROCS=2 GOGC=400
CONTAINERD >/var/log/containerd.log 2>&1 &
until [ -S /run/containerd/containerd.sock ]; do sleep 1; done
KUBELET >/var/log/kubelet.log 2>&1 &
until [ -e /end ]; do sleep 1; done
`

// boot starts the guest. When the test ends, it ends the guest, too, and logs
// what its programs said if the test has failed.
func (g *guestNode) boot(m Machine, limit time.Duration) {
	t := g.t
	t.Helper()
	start := new(Image)
	modules := []string{"failover", "net_failover", "virtio_net"}
	for _, name := range modules {
		must(t, start.File("/lib/"+name+".ko", fromScript(t, "./kernel.sh", "--module="+name, seriesOf(m.Kernel))))
	}
	start.Text("/on-disk.sh", "for m in "+strings.Join(modules, " ")+"; do insmod /lib/$m.ko || exit; done\n"+mountDisk)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	node := Command{Name: "node", Args: []string{"sh", "/on-disk.sh", "/bin/sh", "/node.sh"}}
	go func() {
		report, err := m.Run(ctx, start, []Command{node}, t.Output())
		fmt.Fprintf(t.Output(), "boot %.1f s, whole %.1f s, CPU %.1f s\n", report.Boot.Seconds(), report.Total.Seconds(), report.CPU.Seconds())
		g.machine <- err
	}()
	t.Cleanup(func() {
		defer cancel()
		if t.Failed() {
			g.logTails()
		}
		_, _ = g.try("touch /end")
		select {
		case err := <-g.machine:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(2 * time.Minute):
			t.Error("the guest does not end")
			cancel()
			<-g.machine
		}
	})
	begun := time.Now()
	g.soon(5*time.Minute, "the guest answers", func() error {
		_, err := g.try("true")
		return err
	})
	t.Logf("the guest answers after %.0f s", time.Since(begun).Seconds())
}

// logTails logs what the programs of the node and the scheduler said last.
func (g *guestNode) logTails() {
	for what, script := range map[string]string{
		"kubelet":    "grep '^[EW]' /var/log/kubelet.log | tail -n 30; tail -n 5 /var/log/kubelet.log",
		"containerd": "grep -v level=info /var/log/containerd.log | tail -n 20; tail -n 5 /var/log/containerd.log",
		"tenond":     "tail -n 60 /var/log/tenond.log",
		"guest":      "uptime; free -m; top -bn1 | head -n 20; dmesg | tail -n 5",
	} {
		said, err := g.try(script)
		g.t.Logf("%s (%v):\n%s", what, err, said)
	}
	if text, err := os.ReadFile(filepath.Join(g.c.Dir, "log", "tenon-scheduler.log")); err == nil {
		g.t.Logf("tenon-scheduler:\n%s", lastLines(string(text), 15))
	}
}

// try runs a script in the guest and returns what it prints.
func (g *guestNode) try(script string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute) // the cleanup runs without the context of the test
	defer cancel()
	conn, err := g.c.Dial(ctx, "tcp", fmt.Sprintf("%s:%d", g.n.IP, guestShell))
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = conn.SetDeadline(end)
	}
	if _, err := fmt.Fprintf(conn, "%s\ns=$?; echo; echo \"@@$s\"; exit\n", script); err != nil {
		return "", err
	}
	out, err := io.ReadAll(conn)
	text, status, ended := strings.Cut(string(out), "\n@@")
	if err == nil && (!ended || strings.TrimSpace(status) != "0") {
		err = fmt.Errorf("the shell of the guest ended with %q", status)
	}
	return text, err
}

// sh runs a script in the guest, or fails the test.
func (g *guestNode) sh(script string) string {
	g.t.Helper()
	out, err := g.try(script)
	if err != nil {
		g.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return out
}

func (g *guestNode) kubectl(args ...string) string {
	g.t.Helper()
	out, err := g.c.Kubectl(g.t.Context(), args...)
	must(g.t, err)
	return strings.TrimSpace(out)
}

// get reads an object of the API server.
func (g *guestNode) get(path string, to any) error {
	text, err := g.c.Get(g.t.Context(), path)
	if err == nil {
		err = json.Unmarshal(text, to)
	}
	return err
}

// create creates the objects of a manifest.
func (g *guestNode) create(manifest string) {
	g.t.Helper()
	_, err := g.c.KubectlApply(g.t.Context(), manifest, "create", "-f", "-")
	must(g.t, err)
}

// pods returns the pods whose name begins with a prefix, by name.
func (g *guestNode) pods(prefix string) ([]corev1.Pod, error) {
	var list corev1.PodList
	err := g.get("/api/v1/namespaces/default/pods", &list)
	list.Items = slices.DeleteFunc(list.Items, func(p corev1.Pod) bool { return !strings.HasPrefix(p.Name, prefix) })
	return list.Items, err
}

// running waits until n pods whose name begins with a prefix run, and returns
// them.
func (g *guestNode) running(prefix string, n int) (pods []corev1.Pod) {
	g.t.Helper()
	begun := time.Now()
	g.soon(15*time.Minute, fmt.Sprintf("%d pods of %s run", n, prefix), func() (err error) {
		if pods, err = g.pods(prefix); err != nil {
			return err
		}
		var rest []string
		for _, p := range pods {
			if p.Status.Phase != corev1.PodRunning {
				rest = append(rest, describe(p))
			}
		}
		if len(pods) != n || len(rest) > 0 {
			err = fmt.Errorf("%d exist: %s", len(pods), strings.Join(rest, "; "))
		}
		return err
	})
	g.t.Logf("%d pods of %s run after %.0f s; the guest is up for %s s", n, prefix, time.Since(begun).Seconds(), strings.TrimSpace(g.sh("cut -d' ' -f1 /proc/uptime")))
	return pods
}

// describe returns the phase of a pod, and why it does not run.
func describe(p corev1.Pod) string {
	text := fmt.Sprintf("%s is %s %s", p.Name, p.Status.Phase, p.Status.Message)
	for _, c := range p.Status.Conditions {
		if c.Status != corev1.ConditionTrue && c.Message != "" {
			text += fmt.Sprintf(", not %s: %s", c.Type, c.Message)
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if w := c.State.Waiting; w != nil {
			text += fmt.Sprintf(", %s waits: %s %s", c.Name, w.Reason, w.Message)
		}
	}
	return text
}

// soon fails the test if f does not succeed within the limit. It logs a new
// error of f, at most one each 10 s.
func (g *guestNode) soon(limit time.Duration, claim string, f func() error) {
	g.t.Helper()
	begun, last, logged := time.Now(), "", time.Now()
	for {
		err := f()
		if err == nil {
			return
		}
		if now := err.Error(); now != last && time.Since(logged) > 10*time.Second {
			last, logged = now, time.Now()
			g.t.Logf("after %.0f s, not yet so: %s: %.600s", time.Since(begun).Seconds(), claim, now)
		}
		if time.Since(begun) > limit {
			g.t.Fatalf("not so after %v: %s: %v", limit, claim, err)
		}
		select {
		case err := <-g.machine:
			g.machine <- err
			g.t.Fatalf("the guest has ended before %s: %v", claim, err)
		case <-time.After(time.Second):
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
