package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/config"

	"tenon.sh/tenon/internal/cluster/certificate"
	"tenon.sh/tenon/internal/cluster/manager"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/cluster/webhooks"
	"tenon.sh/tenon/internal/cmdline"
)

// version is set by the build: -ldflags "-X main.version=v1.2.3".
var version string

// defaultNamespace is the default namespace of the manager outside a pod.
const defaultNamespace = "tenon-system"

// command holds the values of the flags.
type command struct {
	kubeconfig      string
	namespace, name string
	configMap       cmdline.ObjectName
	service         string
	servicePort     int32
	webhookPort     int
	scheduler       string
	schedulers      map[string]string
	metrics, health string
	prometheus      promapi.Server
	elect, dryRun   bool
	lifetimes       certificate.Lifetimes
	log             cmdline.Log
}

func newRootCommand() *cobra.Command {
	c := &command{}
	root := &cobra.Command{
		Use:   "tenon-manager",
		Short: "Publish batch resources on the nodes of a cluster, and answer its webhooks",
		Long: `tenon-manager follows the reports of the nodes' agents (kubectl get nodereports)
and writes kubernetes.io/batch-cpu and kubernetes.io/batch-memory into the
status of the nodes; nobody else does. Why a node has what it has stands in its
report, in status.published.

It also answers the webhooks for pods of class BE, profiles and the ConfigMap,
with certificates that it makes and renews by itself. Several replicas answer
webhooks; the one that holds the lease writes.`,
		Example: `  tenon-manager --dry-run --kubeconfig ~/.kube/config   # say what would be written
  tenon-manager --config-map kube-system/ack-slo-config  # settings of ACK`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.run(cmd.Context(), cmd.ErrOrStderr())
		},
	}
	f := root.Flags()
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "the kubeconfig file; empty: KUBECONFIG, or the service account of the pod")
	f.StringVar(&c.namespace, "namespace", ownNamespace(), "the namespace of the manager, its lease and its Secret")
	f.StringVar(&c.name, "name", "tenon-manager", "the name of the lease, the Secret and the webhook configurations")
	c.configMap.AddConfigMap(root)
	f.StringVar(&c.service, "service", "tenon-manager", "the Service by which the API server reaches the webhooks")
	f.Int32Var(&c.servicePort, "service-port", 443, "the port of that Service")
	f.IntVar(&c.webhookPort, "webhook-port", 9443, "the port of the webhooks; 0: none")
	f.StringVar(&c.scheduler, "scheduler-name", "", "the scheduler that chooses CPUs: the webhooks name it in the pods that ask for CPUs and name none; empty: none")
	f.StringToStringVar(&c.schedulers, "translate-scheduler", nil, "schedulers to replace in new pods, as FROM=TO, such as koord-scheduler=default-scheduler; for a cluster in which the scheduler that manifests name does not run")
	f.StringVar(&c.metrics, "metrics", ":8080", "the address of /metrics; empty: none")
	f.StringVar(&c.health, "health", ":8081", "the address of /healthz and /readyz; empty: none")
	f.StringVar(&c.prometheus.URL, "prometheus-url", "", "the Prometheus server that knows the requests of services, for objectives with the source query: http:// or https://, a host, and the path before /api/v1; empty: none")
	f.StringVar(&c.prometheus.CAFile, "prometheus-ca-file", "", "the file of the authorities that may sign its certificate, in PEM; empty: those of the system")
	f.StringVar(&c.prometheus.TokenFile, "prometheus-token-file", "", "the file of a bearer token for it; empty: none")
	f.StringToStringVar(&c.prometheus.Headers, "prometheus-header", nil, "headers of each request to it, as NAME=VALUE, such as X-Scope-OrgID=team")
	f.BoolVar(&c.elect, "leader-elect", true, "only the replica that holds the lease writes")
	f.BoolVar(&c.dryRun, "dry-run", false, "write nothing, log what would be written, serve no webhooks")
	f.DurationVar(&c.lifetimes.CA, "ca-lifetime", certificate.DefaultLifetimes.CA, "validity of the CA of the webhooks; renewed after two thirds")
	f.DurationVar(&c.lifetimes.Serving, "certificate-lifetime", certificate.DefaultLifetimes.Serving, "validity of their certificate; renewed after two thirds")
	f.DurationVar(&c.lifetimes.Settle, "certificate-settle", certificate.DefaultLifetimes.Settle, "time for which a new CA is trusted before it signs, and an old one afterwards")
	uninstall := newUninstallCommand(c)
	c.log.Add(root, uninstall)
	cmdline.Files(f, "kubeconfig", "prometheus-ca-file", "prometheus-token-file")
	cmdline.GroupFlags(f,
		cmdline.FlagGroup{Title: "Cluster"},
		cmdline.FlagGroup{Title: "Webhooks", Flags: []string{"ca-lifetime", "certificate-lifetime", "certificate-settle", "scheduler-name", "service", "service-port", "translate-scheduler", "webhook-port"}},
		cmdline.FlagGroup{Title: "Prometheus", Flags: []string{"prometheus-ca-file", "prometheus-header", "prometheus-token-file", "prometheus-url"}},
		cmdline.FlagGroup{Title: "Addresses", Flags: []string{"health", "metrics"}},
		cmdline.FlagGroup{Title: "Log", Flags: []string{"log-format", "log-level"}})
	root.AddCommand(newCheckCommand(c), uninstall)
	cmdline.Prepare(root, versionName())
	return root
}

// options checks the flags, and converts them to options of the manager.
func (c *command) options(stderr io.Writer) (manager.Options, error) {
	o := manager.Options{
		Namespace: c.namespace, Name: c.name, Config: client.ObjectKey(c.configMap),
		Service: webhooks.Service{Namespace: c.namespace, Name: c.service, Port: c.servicePort}, Port: c.webhookPort, Scheduler: c.scheduler,
		Metrics: c.metrics, Health: c.health, Elect: c.elect, DryRun: c.dryRun, Lifetimes: c.lifetimes,
		SchedulerNames: c.schedulers, Prometheus: c.prometheus,
	}
	if c.dryRun {
		o.Port = 0
	}
	l := c.lifetimes
	for from, to := range c.schedulers {
		if from == "" || to == "" {
			return o, cmdline.Usagef("--translate-scheduler %s=%s: want the names of two schedulers", from, to)
		}
	}
	switch {
	case c.webhookPort < 0 || c.webhookPort > 65535:
		return o, cmdline.Usagef("--webhook-port %d: want 0 to 65535", c.webhookPort)
	case l.Settle <= 0 || l.Serving < 6*l.Settle || l.CA < 2*l.Serving:
		return o, cmdline.Usagef("--certificate-settle %v, --certificate-lifetime %v, --ca-lifetime %v: want a certificate lifetime of at least 6 times the settle time, and a CA lifetime of at least twice that of the certificate",
			l.Settle, l.Serving, l.CA)
	}
	if err := c.prometheus.Check("--prometheus-url"); err != nil {
		return o, cmdline.Usage(err)
	}
	o.Log = c.log.Logger(stderr)
	return o, nil
}

func (c *command) run(ctx context.Context, stderr io.Writer) error {
	o, err := c.options(stderr)
	if err != nil {
		return err
	}
	rc, err := c.server()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	slog.SetDefault(o.Log) // for libraries that use the default logger
	o.Log.Info("tenon-manager", "version", versionName(), "config", o.Config, "dry_run", o.DryRun)
	return manager.Run(ctx, rc, o)
}

// server returns the client configuration for the API server.
func (c *command) server() (*rest.Config, error) {
	if c.kubeconfig != "" {
		rc, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
		if err != nil {
			return nil, fmt.Errorf("read --kubeconfig %s: %w", c.kubeconfig, err)
		}
		return rc, nil
	}
	rc, err := config.GetConfig()
	if err != nil {
		return nil, errors.Join(errors.New("find the API server: neither --kubeconfig nor KUBECONFIG is set, and this is not a pod"), err)
	}
	return rc, nil
}

// ownNamespace returns the namespace of this pod.
func ownNamespace() string {
	if n := os.Getenv("POD_NAMESPACE"); n != "" {
		return n
	}
	if n, err := os.ReadFile("/var/run/secrets/kubernetes.io/serviceaccount/namespace"); err == nil {
		return strings.TrimSpace(string(n))
	}
	return defaultNamespace
}

// versionName returns the version of the build.
func versionName() string { return cmdline.Version(version) }
