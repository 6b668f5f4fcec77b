package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/cluster/kube"
)

// An emptyPlugin scores nodes for the same pods as Tenon's plugin, but does no
// work. Its cost is the cost of the framework for any plugin that scores nodes,
// or that filters and scores them.
type emptyPlugin struct{ filters bool }

var (
	_ fwk.PreFilterPlugin = emptyPlugin{}
	_ fwk.FilterPlugin    = emptyPlugin{}
	_ fwk.PreScorePlugin  = emptyPlugin{}
	_ fwk.ScorePlugin     = emptyPlugin{}
	_ fwk.SignPlugin      = emptyPlugin{}
)

func (emptyPlugin) Name() string { return "Empty" }

func asks(p *corev1.Pod) bool { return p.Annotations[kube.AnnotationCPUSetScheduler] != "" }

func (e emptyPlugin) PreFilter(_ context.Context, _ fwk.CycleState, p *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !e.filters || !asks(p) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

func (emptyPlugin) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (emptyPlugin) Filter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status {
	return nil
}

func (emptyPlugin) PreScore(_ context.Context, _ fwk.CycleState, p *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if !asks(p) {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

func (emptyPlugin) Score(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

func (emptyPlugin) ScoreExtensions() fwk.ScoreExtensions { return nil }

func (emptyPlugin) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) {
	return nil, nil
}
