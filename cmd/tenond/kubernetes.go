package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"

	"tenon.sh/tenon/internal/agent/cluster"
	"tenon.sh/tenon/internal/cluster/apiserver"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// clusterFlags are the flags for a node of a Kubernetes cluster.
type clusterFlags struct {
	on         bool
	node       string
	kubeconfig string
	kubelet    string
	port       uint16
	ca         string
	insecure   bool
	root       string
	poll       time.Duration
	configMap  cmdline.ObjectName
	daemonSet  cmdline.ObjectName
	nri        string
}

// clusterFlagNames are the flags of clusterFlags.
var clusterFlagNames = []string{
	"config-map", "daemonset", "kubeconfig", "kubelet", "kubelet-ca", "kubelet-insecure", "kubelet-poll", "kubelet-port", "kubelet-root",
	"kubernetes", "node-name", "nri",
}

func (f *clusterFlags) add(root *cobra.Command) {
	flags := root.Flags()
	flags.BoolVar(&f.on, "kubernetes", false, "the node is one of a cluster: keep its pods, as the cluster's ConfigMap says")
	flags.StringVar(&f.node, "node-name", os.Getenv("NODE_NAME"), "the name of the node in the cluster (default: $NODE_NAME, or that of the host)")
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "the kubeconfig file; empty: the service account of the pod")
	flags.StringVar(&f.kubelet, "kubelet", "", "the URL of the kubelet (default: --kubelet-port of $NODE_IP, or of this host)")
	flags.Uint16Var(&f.port, "kubelet-port", kubelet.Port, "the port of the kubelet, where --kubelet does not say it")
	flags.StringVar(&f.ca, "kubelet-ca", "", "the file of the authorities that sign the kubelet's certificate; empty: those of the API server's")
	flags.BoolVar(&f.insecure, "kubelet-insecure", false, "do not check the kubelet's certificate; it must otherwise be signed by an authority, or be in pki below --kubelet-root, where kubelets put one that they sign themselves")
	flags.StringVar(&f.root, "kubelet-root", "/var/lib/kubelet", "the root directory of the kubelet: its files say who binds CPUs there, also if the kubelet refuses its API; empty: do not read it")
	flags.DurationVar(&f.poll, "kubelet-poll", 5*time.Second, "how often to ask the kubelet for its pods when no cgroup comes or goes")
	f.configMap.AddConfigMap(root)
	flags.StringVar(&f.nri, "nri", nri.DefaultSocket, "the socket at which the container runtime offers NRI, so that containers have their values before they start; empty: none")
	flags.Var(&f.daemonSet, "daemonset", "the DaemonSet that this is a pod of: if that is deleted, put everything back when asked to stop")
	cmdline.Files(flags, "kubeconfig", "kubelet-ca", "nri")
	cmdline.Dirs(flags, "kubelet-root")
}

// check refuses flags about a cluster on a node that is in none.
func (f *clusterFlags) check(cmd *cobra.Command) error {
	for _, name := range clusterFlagNames {
		if !f.on && name != "kubernetes" && cmd.Flags().Changed(name) {
			return cmdline.Usagef("--%s has no effect without --kubernetes", name)
		}
	}
	return nil
}

// connect connects to the cluster of the node. It returns nil if the node is in
// no cluster. The client of the API server writes to log.
func (f *clusterFlags) connect(log *slog.Logger) (*cluster.Kubernetes, error) {
	if !f.on {
		return nil, nil
	}
	if f.poll < time.Second {
		return nil, cmdline.Usagef("--kubelet-poll %v: want at least 1s", f.poll)
	}
	node := f.node
	if node == "" {
		host, err := os.Hostname()
		if err != nil {
			return nil, cmdline.Usagef("--node-name is needed: this host has no name")
		}
		node = strings.ToLower(host)
	}
	klog.SetSlogLogger(log)
	config, err := apiserver.Config(f.kubeconfig)
	if err != nil {
		return nil, err
	}
	config.UserAgent = "tenond/" + versionName()
	api, err := apiserver.Open(config)
	if err != nil {
		return nil, err
	}
	client, err := kubelet.Open(kubelet.Options{URL: f.kubeletURL(os.Getenv("NODE_IP")), CAFile: f.ca, Insecure: f.insecure, As: config, Root: f.root})
	if err != nil {
		return nil, err
	}
	return &cluster.Kubernetes{
		Node: node, API: api, Kubelet: client, Poll: f.poll,
		Namespace: f.configMap.Namespace, ConfigMap: f.configMap.Name, NRI: f.nri,
	}, nil
}

// kubeletURL returns the URL of the kubelet on the node with the given IPv4 or
// IPv6 address.
func (f *clusterFlags) kubeletURL(ip string) string {
	if f.kubelet != "" {
		return f.kubelet
	}
	return "https://" + net.JoinHostPort(cmp.Or(ip, "127.0.0.1"), strconv.Itoa(int(f.port)))
}

// A daemonSetCheck asks whether the DaemonSet still selects tenond's node.
type daemonSetCheck struct {
	api             *apiserver.Client
	node            string
	namespace, name string // of the DaemonSet; an empty name: there is none
	log             *slog.Logger
	// known means that tenond has read the DaemonSet at least once. A later
	// denial of access is then a change.
	known atomic.Bool
}

// stayOf returns the check for the tenond of a node.
func (f *clusterFlags) stayOf(k *cluster.Kubernetes, log *slog.Logger) *daemonSetCheck {
	s := &daemonSetCheck{log: log}
	if k != nil {
		s.api, s.node = k.API, k.Node
		s.namespace, s.name = f.daemonSet.Namespace, f.daemonSet.Name
	}
	return s
}

// begin tries to read the DaemonSet until it succeeds, or until ctx ends.
func (s *daemonSetCheck) begin(ctx context.Context) {
	for s.name != "" && !s.known.Load() && ctx.Err() == nil {
		if _, err := s.ask(ctx); err == nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(asksAgain):
		}
	}
}

func (s *daemonSetCheck) ask(ctx context.Context) (bool, error) {
	ctx, stop := context.WithTimeout(ctx, asksWithin/2)
	defer stop()
	leaves, err := s.api.Leaves(ctx, s.namespace, s.name, s.node)
	if err == nil {
		s.known.Store(true)
	}
	return leaves, err
}

// ends reports whether tenond must stop for good: its DaemonSet is being
// deleted or no longer runs on the node, or its namespace is being deleted. If
// the API server does not answer, ends returns false. There is one exception.
// If tenond could read the DaemonSet before, and now may read neither the
// DaemonSet nor the namespace, the Helm release was uninstalled.
func (s *daemonSetCheck) ends() bool {
	if s.name == "" {
		return false
	}
	leaves, err := s.ask(context.Background())
	if leaves {
		return true
	}
	ctx, stop := context.WithTimeout(context.Background(), asksWithin/2)
	defer stop()
	switch gone, hidden := s.api.Ends(ctx, s.namespace); {
	case gone:
		s.log.Info("restoring all knobs: the namespace is being deleted", "namespace", s.namespace)
		return true
	case errors.Is(err, apiserver.ErrDenied) && errors.Is(hidden, apiserver.ErrDenied) && s.known.Load():
		s.log.Info("restoring all knobs: this tenond has lost its permissions", "error", err)
		return true
	}
	if err != nil {
		s.log.Warn("restoring no knob: cannot check whether the DaemonSet stays", "error", err)
	}
	return false
}

// reportLeave sends the last report of a node that tenond leaves for good. An
// error is only logged: without the report, the cluster learns of the end when
// the report before is too old.
func reportLeave(k *cluster.Kubernetes, limit time.Duration, log *slog.Logger) {
	if err := runWithin(limit, func(ctx context.Context) error { return k.ReportLeave(ctx, versionName()) }); err != nil {
		log.Warn("the report of this node does not say that tenond has left", "error", err)
	}
}

const (
	// The pod has 90 s for the end of the loop and of the watchdog, and for the
	// four times below. asksWithin is the time for the API server to tell whether
	// the DaemonSet stays. putsBackWithin is the time for the agent to restore all
	// knobs. releasesWithin is the time for the container runtime to restore the
	// values of containers. reportsWithin is the time for the last report.
	asksWithin     = 5 * time.Second
	putsBackWithin = 30 * time.Second
	releasesWithin = 20 * time.Second
	reportsWithin  = 5 * time.Second
	// asksAgain is the time after an unknown answer until tenond asks again.
	asksAgain = 30 * time.Second
)
