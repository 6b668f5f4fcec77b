package inprocess

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"tenon.sh/tenon/scheduler/plugin"
)

// configuration is the configuration in docs/scheduler.md for a scheduler that
// replaces the cluster's own. There is one difference: reports never become too
// old, because no agent sends them again, and a measurement takes minutes.
const configuration = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint: {enabled: [{name: TenonCPUs, weight: 5}]}
      bind: {enabled: [{name: TenonCPUs}]}
    pluginConfig: [{name: TenonCPUs, args: {staleAfter: 24h}}]
`

// Start starts a scheduler, which ends with ctx. It waits until the informers
// of the scheduler have the state of the cluster, and returns them. If reports
// is nil, the scheduler is kube-scheduler without the plugin.
func Start(ctx context.Context, client kubernetes.Interface, reports *Reports, more ...scheduler.Option) (informers.SharedInformerFactory, error) {
	options := more
	if reports != nil {
		with, err := profile(configuration, plugin.Name, plugin.New)
		if err != nil {
			return nil, err
		}
		options = append(append(options, scheduler.WithKubeConfig(reports.config)), with...)
	}
	factory := scheduler.NewInformerFactory(client, 0, nil)
	recorder := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	s, err := scheduler.New(ctx, client, factory, nil, recorder, options...)
	if err != nil {
		return nil, err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		return nil, err
	}
	go s.Run(ctx)
	return factory, nil
}

// StartWith starts a scheduler with the plugin p, which may filter and score
// nodes.
func StartWith(ctx context.Context, client kubernetes.Interface, p fwk.Plugin) (informers.SharedInformerFactory, error) {
	const text = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint: {enabled: [{name: %s, weight: 5}]}
`
	build := func(context.Context, runtime.Object, fwk.Handle) (fwk.Plugin, error) { return p, nil }
	options, err := profile(fmt.Sprintf(text, p.Name()), p.Name(), build)
	if err != nil {
		return nil, err
	}
	return Start(ctx, client, nil, options...)
}

// profile returns the options of a scheduler with a configuration and a plugin.
func profile(text, name string, build frameworkruntime.PluginFactory) ([]scheduler.Option, error) {
	o, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(text), nil, nil)
	if err != nil {
		return nil, err
	}
	return []scheduler.Option{
		scheduler.WithProfiles(o.(*config.KubeSchedulerConfiguration).Profiles...), scheduler.WithComponentConfigVersion("kubescheduler.config.k8s.io/v1"),
		scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{name: build}),
	}, nil
}
