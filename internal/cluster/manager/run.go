package manager

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/api/v1alpha1"

	"tenon.sh/tenon/internal/cluster/admission/missed"
	"tenon.sh/tenon/internal/cluster/certificate"
	"tenon.sh/tenon/internal/cluster/endpoint"
	"tenon.sh/tenon/internal/cluster/manager/opener"
	"tenon.sh/tenon/internal/cluster/promapi"
	"tenon.sh/tenon/internal/cluster/webhooks"
)

// Options configure a manager.
type Options struct {
	// Namespace is the namespace of the manager, its lease and its Secret.
	Namespace string
	// Config names the ConfigMap with the settings.
	Config client.ObjectKey
	// Name is the name of the Secret, of the lease and of the webhook configurations.
	Name string
	// Service is the address at which the API server reaches the webhooks. Host and Port are the
	// address on which the manager listens. With Port 0, there are no webhooks.
	Service webhooks.Service
	Host    string
	Port    int
	// SchedulerNames maps the name of a scheduler to the name that replaces it
	// in new pods.
	SchedulerNames map[string]string
	// Prometheus is the server that knows the requests of services whose objective
	// has the source query. The zero Server is none.
	Prometheus promapi.Server
	// Metrics and Health are addresses on which the manager listens. An empty
	// address disables its server. Scheduler is the name of the scheduler that
	// chooses CPUs, or empty.
	Metrics, Health, Scheduler string
	// Elect enables leader election: only the leader writes. Lease is the time
	// after which another replica replaces a leader that no longer renews its
	// lease.
	Elect bool
	Lease time.Duration
	// DryRun logs the changes that the manager would write, and writes nothing.
	DryRun    bool
	Lifetimes certificate.Lifetimes
	Log       *slog.Logger

	// Tests set the registry of metrics, the clock and the interval of
	// searches. By default, the manager uses the real ones.
	registry prometheus.Registerer
	now      func() time.Time
	searches time.Duration // between two searches for missed pods; 0: missed.Every
	rounds   time.Duration // between two rounds of questions to Prometheus; 0: askEvery
}

// startupLimit is the time that a starting manager waits for the API server. It
// is practically unlimited, because a restart would only delay the manager.
const startupLimit = 100 * 365 * 24 * time.Hour

// newScheme returns a scheme with all types that the manager reads and writes.
func newScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	return s, errors.Join(scheme.AddToScheme(s), v1alpha1.AddToScheme(s), configv1alpha1.AddToScheme(s))
}

// Run runs the manager until ctx ends or it loses the lease.
func Run(ctx context.Context, rc *rest.Config, o Options) error {
	if o.now == nil {
		o.now = time.Now
	}
	if o.registry == nil {
		o.registry = ctrlmetrics.Registry
	}
	logger := logr.FromSlogHandler(o.Log.Handler())
	controllerruntime.SetLogger(logger)
	klog.SetLogger(logger)
	types, err := newScheme()
	if err != nil {
		return fmt.Errorf("make the list of types: %w", err)
	}
	rc = rest.CopyConfig(rc)
	rc.UserAgent = Owner
	rc.QPS, rc.Burst = 500, 1000 // the API server itself limits the requests

	cert := &certificate.Serving{Secret: client.ObjectKey{Namespace: o.Namespace, Name: o.Name}, Log: o.Log}
	m, err := controllerruntime.NewManager(rc, o.runtime(types, logger, cert))
	if err != nil {
		return fmt.Errorf("connect to the API server: %w", err)
	}
	cert.Client = m.GetCache()
	set, err := o.publish(m)
	if err != nil {
		return err
	}
	if o.Port != 0 {
		if err := o.serve(m, cert, set); err != nil {
			return err
		}
	}
	ready := map[string]healthz.Checker{"cache": endpoint.CachesReady(m.GetCache())}
	if o.Port != 0 {
		ready["certificate"], ready["webhooks"] = cert.Ready, m.GetWebhookServer().StartedChecker()
	}
	if err := endpoint.Add(m, o.Metrics, o.Health, ready, o.Log); err != nil {
		return err
	}
	if err := m.Start(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

// runtime converts the options to those of controller-runtime.
func (o Options) runtime(types *runtime.Scheme, logger logr.Logger, cert *certificate.Serving) manager.Options {
	lease := o.Lease
	if lease == 0 {
		lease = 30 * time.Second
	}
	// A replica that ends releases its lease. A leader that was killed is
	// replaced when its lease has expired. Until then the amounts stay
	// unchanged, and the agents bound best-effort work as always.
	renew, retry := lease*2/3, lease/4
	yes := true
	named := func(namespace string, name string) cache.ByObject {
		return cache.ByObject{
			Namespaces: map[string]cache.Config{namespace: {FieldSelector: fields.OneTermEqualSelector("metadata.name", name)}}, Transform: withoutManagers,
		}
	}
	options := manager.Options{
		Scheme: types, Logger: logger, MapperProvider: mapper,
		LeaderElection: o.Elect && !o.DryRun, LeaderElectionID: o.Name, LeaderElectionNamespace: o.Namespace,
		LeaseDuration: &lease, RenewDeadline: &renew, RetryPeriod: &retry, LeaderElectionReleaseOnCancel: true,
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", // see endpoint.Add
		Controller: config.Controller{SkipNameValidation: &yes, CacheSyncTimeout: startupLimit},
		Client:     client.Options{},
		Cache: cache.Options{
			DefaultTransform: withoutManagers,
			ByObject: map[client.Object]cache.ByObject{
				&corev1.Node{}:         {Transform: slimNode, UnsafeDisableDeepCopy: &yes},
				&v1alpha1.NodeReport{}: {Transform: slimReport, UnsafeDisableDeepCopy: &yes},
				// The cache follows pods only while batch pods have a gate.
				&corev1.Pod{}:                              {Label: opener.Selector, Transform: opener.SlimPod, UnsafeDisableDeepCopy: &yes},
				&corev1.ConfigMap{}:                        named(o.Config.Namespace, o.Config.Name),
				&corev1.Secret{}:                           named(o.Namespace, o.Name),
				&corev1.Namespace{}:                        {Transform: withoutManagers},
				&corev1.LimitRange{}:                       {Transform: withoutManagers},
				&schedulingv1.PriorityClass{}:              {Transform: withoutManagers},
				&configv1alpha1.ClusterColocationProfile{}: {Transform: missed.Slim},
				&admissionv1.MutatingWebhookConfiguration{}: {
					Field: fields.OneTermEqualSelector("metadata.name", o.Name), Transform: withoutManagers},
				&admissionv1.ValidatingWebhookConfiguration{}: {
					Field: fields.OneTermEqualSelector("metadata.name", o.Name), Transform: withoutManagers},
			},
		},
	}
	if o.Port != 0 {
		options.WebhookServer = endpoint.NewWebhooks(o.Host, o.Port, cert.Certificate, o.Log)
	}
	return options
}
