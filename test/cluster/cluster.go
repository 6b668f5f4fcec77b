// Package cluster runs a real Kubernetes on one machine for tests. It runs
// etcd, the API server with the aggregation layer, the controller manager, the
// scheduler, an image registry of its own and the metrics API. Each node has
// containerd, runc and a kubelet.
//
// The processes run in mount, network and PID namespaces of the cluster, so its
// ports and addresses are private. When the first process, the cluster's init,
// ends, all others end. Only the control groups are in the machine's hierarchy:
// each node has a root cgroup there, which [Cluster.Down] removes.
//
// A cluster needs root and the programs that test/cluster/build/build.sh makes. All nodes share
// one network namespace. Pods on the host network share it, too.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/test/cluster/image"
)

// Server is the address of the API server, for processes in the cluster's
// namespaces and for pods.
const Server = "https://" + controlIP + ":443"

// The addresses of the control plane, both on the loopback interface. controlIP
// is outside serviceRange, because kube-proxy rejects connections to unknown
// services and to unknown ports of services. serviceIP is the first service
// address, which pods use for the API server. Other service addresses work only
// with kube-proxy: see [NodeOptions].KubeProxy.
const (
	controlIP = "10.88.255.1"
	serviceIP = "10.0.0.1"

	serviceRange = "10.0.0.0/16"
)

// Options configure a cluster.
type Options struct {
	// Name distinguishes the clusters of one machine. It is part of the paths
	// of files and control groups. Default: dev.
	Name string
	// Keep means that the cluster outlives the process that started it.
	Keep bool
	// NoScheduler means that the caller starts a scheduler, with the kubeconfig
	// of the user system:kube-scheduler.
	NoScheduler bool
	// NoMetrics means that there is no metrics API, which kubectl top needs.
	NoMetrics bool
	// Images is a folder of prebuilt images, for a machine without the programs
	// from which the images are made. Default: the folder of [image.Build].
	Images string
	// Systemd means that kubelet and containerd have the cgroup driver systemd, and
	// not cgroupfs. systemd must be the first process of this machine. Such a cluster
	// has one node, node-0, whose pods are in kubepods.slice of the machine.
	Systemd bool
	// SystemCPUs are the CPUs of all processes outside pods: control plane,
	// registry, kubelets, containerd and its shims. Default: all.
	SystemCPUs unit.CPUSet
	// APIServer, Controllers and Scheduler are additional arguments of the
	// programs of that name.
	APIServer, Controllers, Scheduler []string
	// Log receives messages about the steps and their durations. It may be nil.
	Log func(format string, args ...any)
}

// A Cluster is a running cluster.
type Cluster struct {
	Name string
	// Dir holds the state: pki, log, node-N.
	Dir string
	// Bin holds the programs.
	Bin string

	// Init is the PID of the cluster's init on this machine. Born is the start
	// time of init, in clock ticks since boot (starttime in proc(5)).
	Init int
	Born string
	// Made lists folders of the machine that the cluster created as mount
	// points.
	Made []string
	// SystemCPUs and Systemd are the same as in [Options].
	SystemCPUs unit.CPUSet
	Systemd    bool
	// Network identifies the network namespace of the cluster, as /proc/PID/ns/net
	// does.
	Network string

	log      func(format string, args ...any)
	lifeline *os.File // the init ends when this file is closed
}

// Dir returns the folder of the state of the cluster with that name.
func Dir(name string) string { return filepath.Join(os.TempDir(), "tenon-cluster-"+name) }

// Cache returns the folder of built programs and images: $TENON_CACHE, or the
// folder tenon in the user's cache directory.
func Cache() string {
	if dir := os.Getenv("TENON_CACHE"); dir != "" {
		return dir
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "tenon")
}

// Missing returns an error if this machine lacks something that a cluster
// needs.
func Missing() error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root")
	}
	for _, tool := range []string{"nsenter", "unshare", "setpriv", "ip", "mount"} {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("a cluster needs %s: run scripts/install-deps.sh test", tool)
		}
	}
	bin := filepath.Join(Cache(), "cluster", "bin")
	for _, program := range []string{"hyper", "etcd", "containerd", "runc", "cni/bridge"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			return fmt.Errorf("%s is not in %s: run make cluster-build", program, bin)
		}
	}
	return nil
}

// Up starts a cluster without nodes and returns when pods can be created.
// Before that, it removes the remains of a cluster with the same name. If that
// cluster still runs, Up returns an error.
func Up(ctx context.Context, o Options) (_ *Cluster, err error) {
	if err := Missing(); err != nil {
		return nil, err
	}
	if o.Name == "" {
		o.Name = "dev"
	}
	if o.Log == nil {
		o.Log = func(string, ...any) {}
	}
	if old, err := Attach(o.Name); err == nil {
		if old.alive() {
			return nil, fmt.Errorf("cluster %s is up: bin/cluster -name %s run bash enters it, and bin/cluster -name %s down removes it", o.Name, o.Name, o.Name)
		}
		if err := old.Down(); err != nil {
			return nil, fmt.Errorf("remove what an earlier cluster %s left: %w", o.Name, err)
		}
	}
	begun := time.Now()
	c := &Cluster{Name: o.Name, Dir: Dir(o.Name), Bin: filepath.Join(Cache(), "cluster", "bin"), SystemCPUs: o.SystemCPUs, Systemd: o.Systemd, log: o.Log}
	defer func() {
		if err != nil {
			err = fmt.Errorf("start cluster %s: %w", o.Name, err)
			if c.Init != 0 {
				err = errors.Join(err, c.Down())
			}
		}
	}()
	images := image.Layout{Dir: o.Images}
	if o.Images == "" {
		if images, err = image.Build(ctx, Cache()); err != nil {
			return nil, err
		}
	}
	for _, dir := range []string{"pki", "log", "run", "images"} {
		if err := os.MkdirAll(filepath.Join(c.Dir, dir), 0o755); err != nil {
			return nil, err
		}
	}
	if err := c.makePKI(); err != nil {
		return nil, err
	}
	if err := c.startInit(ctx, o.Keep, images); err != nil {
		return nil, err
	}
	if err := c.startControlPlane(ctx, o); err != nil {
		return nil, err
	}
	o.Log("control plane in %.1f s", time.Since(begun).Seconds())
	return c, nil
}

// Attach returns the running cluster with this name. Another process has
// started it.
func Attach(name string) (*Cluster, error) {
	c := &Cluster{log: func(string, ...any) {}}
	text, err := os.ReadFile(filepath.Join(Dir(name), "cluster.json"))
	if err == nil {
		err = json.Unmarshal(text, c)
	}
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil, fmt.Errorf("there is no cluster %s", name)
	case err != nil:
		return nil, fmt.Errorf("cluster %s: %w", name, err)
	}
	return c, nil
}

// save writes the file that [Attach] reads.
func (c *Cluster) save() error {
	text, err := json.Marshal(c)
	if err != nil {
		return err
	}
	return os.WriteFile(c.file("cluster.json"), text, 0o644)
}

// runOnSystemCPUs calls start. All processes created by start, and their
// children, run only on SystemCPUs. Containers are an exception: runc binds
// them to the CPUs of their control group.
func (c *Cluster) runOnSystemCPUs(start func() error) error {
	if c.SystemCPUs.Empty() {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before, err := task.Affinity(0)
	if err != nil {
		return err
	}
	if missing := c.SystemCPUs.Minus(before); !missing.Empty() {
		return fmt.Errorf("SystemCPUs %v: CPU %v is not online or not allowed here; usable are %v", c.SystemCPUs, missing, before)
	}
	if err := task.SetAffinity(0, c.SystemCPUs); err != nil {
		return err
	}
	return errors.Join(start(), task.SetAffinity(0, before))
}

// alive reports whether the cluster's init runs. It compares the start time,
// because another process may have the PID now.
func (c *Cluster) alive() bool {
	return c.Init != 0 && startTimeOf(fmt.Sprintf("/proc/%d", c.Init)) == c.Born
}

// startTimeOf returns the start time of a process, whose folder in /proc is
// given. It returns "" if the process does not exist or is dead.
func startTimeOf(process string) string {
	text, err := os.ReadFile(filepath.Join(process, "stat"))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name may contain spaces
	fields := strings.Fields(rest)
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return ""
	}
	return fields[19]
}

// Down ends every process of the cluster. It removes the control groups and
// files of the cluster. Mounts and interfaces vanish with their namespaces.
func (c *Cluster) Down() error {
	if c.alive() {
		if err := syscall.Kill(c.Init, syscall.SIGKILL); err != nil {
			return fmt.Errorf("end cluster %s: %w", c.Name, err)
		}
	}
	if c.lifeline != nil {
		c.lifeline.Close()
	}
	err := retry(context.Background(), 20*time.Second, func() error {
		if c.alive() {
			return fmt.Errorf("its init, process %d, does not end", c.Init)
		}
		if c.Systemd {
			if err := c.endUnits(); err != nil {
				return err
			}
		}
		if err := removeGroups(c.Name); err != nil {
			return err
		}
		// A process of the cluster in the host's PID namespace ends when its
		// parent dies, a moment after init. It may still write a file until
		// then.
		return os.RemoveAll(c.Dir)
	})
	if err != nil {
		return fmt.Errorf("end cluster %s: %w", c.Name, err)
	}
	// The removal of a directory also removes mounts on it in other namespaces.
	// Therefore only the last cluster removes these directories, if they are
	// empty.
	unlock, err := lockFolders()
	if err != nil {
		return fmt.Errorf("end cluster %s: %w", c.Name, err)
	}
	defer unlock()
	if len(otherClusters(c.Name)) == 0 {
		for _, dir := range c.Made {
			_ = os.Remove(dir)
		}
	}
	return nil
}

// otherClusters returns all other clusters of this machine.
func otherClusters(name string) []*Cluster {
	files, _ := filepath.Glob(filepath.Join(Dir("*"), "cluster.json"))
	var all []*Cluster
	for _, file := range files {
		other := strings.TrimPrefix(filepath.Dir(file), Dir(""))
		if c, err := Attach(other); err == nil && other != name {
			all = append(all, c)
		}
	}
	return all
}

func (c *Cluster) file(parts ...string) string {
	return filepath.Join(append([]string{c.Dir}, parts...)...)
}

// scaleLimit returns the longer of two times: the limit, and the variable
// TENON_TEST_PATIENCE, which is for slow machines.
func scaleLimit(limit time.Duration) time.Duration {
	d, _ := time.ParseDuration(os.Getenv("TENON_TEST_PATIENCE"))
	return max(limit, d)
}

// retry calls f at growing intervals until f succeeds. At the time limit, it
// returns the last error of f.
func retry(ctx context.Context, limit time.Duration, f func() error) error {
	limit = scaleLimit(limit)
	end := time.Now().Add(limit)
	for pause := 20 * time.Millisecond; ; pause = min(pause*5/4, time.Second/2) {
		err := f()
		if err == nil || errors.Is(err, errFinal) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("after %v: %w", limit, err)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

// errFinal marks an error after which retry does not try again.
var errFinal = errors.New("gave up")
