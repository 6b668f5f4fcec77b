package main

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/cluster/kube"
)

// An empty is a plugin that filters and scores the same pods as Tenon's plugin,
// but does no work. Its cost is the cost of the framework for any plugin that
// filters and scores nodes.
type empty struct{}

var (
	_ fwk.PreFilterPlugin = empty{}
	_ fwk.FilterPlugin    = empty{}
	_ fwk.PreScorePlugin  = empty{}
	_ fwk.ScorePlugin     = empty{}
	_ fwk.SignPlugin      = empty{}
)

func (empty) Name() string { return "Empty" }

func asks(p *corev1.Pod) bool { return p.Annotations[kube.AnnotationCPUSetScheduler] != "" }

func (empty) PreFilter(_ context.Context, _ fwk.CycleState, p *corev1.Pod, _ []fwk.NodeInfo) (*fwk.PreFilterResult, *fwk.Status) {
	if !asks(p) {
		return nil, fwk.NewStatus(fwk.Skip)
	}
	return nil, nil
}

func (empty) PreFilterExtensions() fwk.PreFilterExtensions { return nil }

func (empty) Filter(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) *fwk.Status {
	return nil
}

func (empty) PreScore(_ context.Context, _ fwk.CycleState, p *corev1.Pod, _ []fwk.NodeInfo) *fwk.Status {
	if !asks(p) {
		return fwk.NewStatus(fwk.Skip)
	}
	return nil
}

func (empty) Score(context.Context, fwk.CycleState, *corev1.Pod, fwk.NodeInfo) (int64, *fwk.Status) {
	return 0, nil
}

func (empty) ScoreExtensions() fwk.ScoreExtensions { return nil }

func (empty) SignPod(context.Context, *corev1.Pod) ([]fwk.SignFragment, *fwk.Status) { return nil, nil }
