package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/util/workqueue"
	controllerruntime "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	configv1alpha1 "tenon.sh/tenon/api/config/v1alpha1"
	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/cluster/admission/missed"
	"tenon.sh/tenon/internal/cluster/certificate"
	"tenon.sh/tenon/internal/cluster/manager/opener"
	"tenon.sh/tenon/internal/cluster/manager/promoter"
	"tenon.sh/tenon/internal/cluster/manager/settings"
	"tenon.sh/tenon/internal/cluster/webhooks"
)

// workers is the number of nodes that the manager reconciles at the same time.
// A worker mostly waits for the API server.
const workers = 32

// publish adds the controller of nodes to the manager, and returns the settings that it reads.
func (o Options) publish(m manager.Manager) (*settings.Settings, error) {
	wake := make(chan event.GenericEvent, 1)
	set := &settings.Settings{
		Client: m.GetCache(), Name: o.Config, Log: o.Log, Events: m.GetEventRecorder(Owner), Leads: o.leads(m), Now: o.now, Missing: settings.NewGauge(),
		Changed: func(ctx context.Context) {
			select {
			case wake <- event.GenericEvent{Object: &corev1.Node{}}:
			case <-ctx.Done():
			}
		},
	}
	n := &nodes{
		client: m.GetClient(), settings: set, sightings: newSightings(o.now), events: m.GetEventRecorder(Owner), log: o.Log,
		metrics: newMetrics(), now: o.now, dry: o.DryRun, of: map[string]*nodeMemory{},
	}
	if err := errors.Join(o.registry.Register(collector{n.metrics, n}), o.registry.Register(set.Missing), o.registry.Register(expectedScheduler(o.Scheduler))); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	here, yes := false, true
	err := controllerruntime.NewControllerManagedBy(m).Named("settings").For(&corev1.ConfigMap{}).
		WatchesRawSource(triggerOnce()).
		WithOptions(controller.Options{NeedLeaderElection: &here}).Complete(set)
	if err != nil {
		return nil, fmt.Errorf("follow the ConfigMap: %w", err)
	}
	all := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		var list corev1.NodeList
		if err := m.GetCache().List(ctx, &list); err != nil {
			o.Log.Error("list the nodes", "err", err)
			return nil
		}
		requests := make([]reconcile.Request, 0, len(list.Items))
		for i := range list.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return requests
	})
	err = controllerruntime.NewControllerManagedBy(m).Named("nodes").
		Watches(&v1alpha1.NodeReport{}, n.sight()).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(nodeChanged)).
		WatchesRawSource(source.Channel(wake, all)).
		// Replicas that do not lead also read the reports. So each replica already
		// knows the age of each report when it becomes the leader.
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, EnableWarmup: &yes, RateLimiter: patience()}).Complete(n)
	if err != nil {
		return nil, fmt.Errorf("follow nodes and reports: %w", err)
	}
	if o.DryRun {
		return set, nil
	}
	promotes := &promoter.Promoter{
		Access: opener.Access{Cache: m.GetCache(), Live: m.GetAPIReader(), Client: m.GetClient(), Owner: Owner},
		Voice:  opener.Voice{Events: m.GetEventRecorder(Owner), Log: o.Log, Now: o.now}, Namespace: o.Namespace, Settings: set,
		Seen: func(r *v1alpha1.NodeReport) (time.Time, bool) { s := n.sightings.see(r); return s.Seen, s.Fresh },
	}
	if err := m.Add(promotes); err != nil {
		return nil, fmt.Errorf("carry out a rollout: %w", err)
	}
	asks := newRequests(o, m.GetCache(), patchReport(m.GetClient()))
	if err := errors.Join(o.registry.Register(asks.asked), m.Add(asks)); err != nil {
		return nil, fmt.Errorf("ask Prometheus for the requests of services: %w", err)
	}
	return set, nil
}

// leads returns a function that reports whether this replica is the leader.
func (o Options) leads(m manager.Manager) func() bool {
	return func() bool {
		select {
		case <-m.Elected():
			return !o.DryRun
		default:
			return false
		}
	}
}

// patience returns the rate limiter for attempts after failed writes.
func patience() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, 30*time.Second)
}

// triggerOnce triggers one reconciliation when the controller starts. It does
// so even if the object does not exist.
func triggerOnce() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		q.Add(reconcile.Request{})
		return nil
	})
}

// sight records the time at which a report changed, and then triggers the
// reconciliation of its node.
func (r *nodes) sight() handler.EventHandler {
	queue := func(q workqueue.TypedRateLimitingInterface[reconcile.Request], o client.Object) {
		q.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: o.GetName()}})
	}
	note := func(o client.Object) {
		if report, is := o.(*v1alpha1.NodeReport); is {
			r.sightings.see(report)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			note(e.Object)
			queue(q, e.Object)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			note(e.ObjectNew)
			queue(q, e.ObjectNew)
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			r.sightings.forget(e.Object.GetName())
			queue(q, e.Object)
		},
	}
}

// nodeChanged drops changes of a node that do not affect batch resources, such
// as the heartbeats of the kubelet.
var nodeChanged = predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	old, is := e.ObjectOld.(*corev1.Node)
	now, also := e.ObjectNew.(*corev1.Node)
	return !is || !also || !maps.Equal(old.Labels, now.Labels) || !maps.Equal(old.Annotations, now.Annotations) ||
		!equality.Semantic.DeepEqual(old.Status.Capacity, now.Status.Capacity) || !equality.Semantic.DeepEqual(old.Status.Allocatable, now.Status.Allocatable)
}}

// serve adds the webhooks and their certificates.
func (o Options) serve(m manager.Manager, cert *certificate.Serving, set *settings.Settings) error {
	var permit *opener.Permit
	if !o.DryRun {
		permit = &opener.Permit{API: m.GetClient(), Log: o.Log, Now: o.now}
	}
	h := &hooks{client: m.GetCache(), live: m.GetAPIReader(), config: o.Config, home: o.Namespace, settings: set, scheduler: o.Scheduler, names: o.SchedulerNames, permit: permit, cert: cert, log: o.Log}
	server := m.GetWebhookServer()
	for path, handle := range map[string]admission.HandlerFunc{
		webhooks.PathMutatePod: h.mutatePod, webhooks.PathValidatePod: h.validatePod, webhooks.PathValidateConfig: h.validateConfig,
		webhooks.PathValidateProfile: h.validateProfile, webhooks.PathValidateNamespace: h.validateNamespace, webhooks.PathValidateQuota: h.validateQuota,
	} {
		server.Register(path, &admission.Webhook{Handler: handle})
	}
	here := false
	own := client.ObjectKey{Namespace: o.Namespace, Name: o.Name}
	err := controllerruntime.NewControllerManagedBy(m).Named("serving").For(&corev1.Secret{}).
		WithOptions(controller.Options{NeedLeaderElection: &here}).Complete(cert)
	if err != nil {
		return fmt.Errorf("follow the Secret: %w", err)
	}
	expiry := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenon_manager_certificate_expiry_timestamp_seconds", Help: "Expiry time of the certificate of the webhooks, in seconds since 1970; 0: there is no certificate.",
	}, func() float64 { return float64(cert.Expires()) })
	renewal := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "tenon_manager_certificate_renewal_timestamp_seconds", Help: "Time from which the replica that leads renews the certificate of the webhooks, in seconds since 1970; 0: there is no certificate.",
	}, func() float64 { return float64(cert.Renewal()) })
	if err := errors.Join(o.registry.Register(expiry), o.registry.Register(renewal)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	// The cache must have these objects before the first call of a webhook.
	for _, object := range []client.Object{&configv1alpha1.ClusterColocationProfile{}, &corev1.Namespace{}, &corev1.LimitRange{}, &schedulingv1.PriorityClass{}} {
		if _, err := m.GetCache().GetInformer(context.Background(), object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("follow %T: %w", object, err)
		}
	}
	if o.DryRun {
		return nil
	}
	finder := &missed.Finder{
		Cache: m.GetCache(), Live: m.GetAPIReader(), Client: m.GetClient(), Events: m.GetEventRecorder(Owner),
		Hooks: o.Name, SchedulerNames: o.SchedulerNames, Every: cmp.Or(o.searches, missed.Every), Log: o.Log, Now: o.now, Gauge: missed.NewGauge(),
	}
	if err := errors.Join(o.registry.Register(finder.Gauge), m.Add(finder)); err != nil {
		return fmt.Errorf("search for pods that profiles missed: %w", err)
	}
	gates := opener.New(opener.Opener{
		Access: opener.Access{Cache: m.GetCache(), Live: m.GetAPIReader(), Client: m.GetClient(), Permit: permit, Owner: Owner},
		Voice:  opener.Voice{Events: m.GetEventRecorder(Owner), Log: o.Log, Now: o.now}, Metrics: opener.NewMetrics(), Settings: set,
	})
	if err := errors.Join(gates.Register(o.registry), m.Add(gates)); err != nil {
		return fmt.Errorf("open the gates of batch pods: %w", err)
	}
	changed := set.Changed
	set.Changed = func(ctx context.Context) {
		gates.Wake()
		changed(ctx)
	}
	a := &certificate.Authority{
		Client: m.GetClient(), Owner: Owner, Secret: own, Hooks: o.Name, Names: o.Service.DNSNames(), Lifetimes: o.Lifetimes, Log: o.Log, Now: o.now,
	}
	to := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
	err = controllerruntime.NewControllerManagedBy(m).Named("authority").WatchesRawSource(triggerOnce()).
		Watches(&corev1.Secret{}, to).Watches(&admissionv1.MutatingWebhookConfiguration{}, to).Watches(&admissionv1.ValidatingWebhookConfiguration{}, to).
		Complete(a)
	if err != nil {
		return fmt.Errorf("keep the certificates: %w", err)
	}
	return nil
}
