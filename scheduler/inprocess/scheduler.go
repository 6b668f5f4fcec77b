package inprocess

import (
	"context"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"tenon.sh/tenon/scheduler/plugin"
)

// configuration is what docs/scheduler.md says for a scheduler in place of the
// cluster's own.
const configuration = `apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    plugins:
      multiPoint: {enabled: [{name: TenonCPUs, weight: 5}]}
      bind: {enabled: [{name: TenonCPUs}]}
`

// Start starts a scheduler, and returns its informers when it has seen the
// cluster. It ends with ctx. Without reports it is kube-scheduler without the
// plugin.
func Start(ctx context.Context, a *API, reports *Reports, more ...scheduler.Option) (informers.SharedInformerFactory, error) {
	options := more
	if reports != nil {
		o, _, err := scheme.Codecs.UniversalDecoder().Decode([]byte(configuration), nil, nil)
		if err != nil {
			return nil, err
		}
		options = append(options, scheduler.WithKubeConfig(reports.config), scheduler.WithProfiles(o.(*config.KubeSchedulerConfiguration).Profiles...),
			scheduler.WithComponentConfigVersion("kubescheduler.config.k8s.io/v1"),
			scheduler.WithFrameworkOutOfTreeRegistry(frameworkruntime.Registry{plugin.Name: plugin.New}))
	}
	factory := scheduler.NewInformerFactory(a, 0, nil)
	recorder := func(string) events.EventRecorderLogger { return &events.FakeRecorder{} }
	s, err := scheduler.New(ctx, a, factory, nil, recorder, options...)
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
