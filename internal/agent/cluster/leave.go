package cluster

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"tenon.sh/tenon/internal/cluster/containerstart"
	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/cluster/nodereport"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// ReleaseContainers restores the kubelet's values in all containers. The daemon
// with this state directory has set other values through the container runtime
// (NRI), and the journal does not contain them. Without NRI, there is nothing
// to restore.
func (k Kubernetes) ReleaseContainers(ctx context.Context, stateDir string, log *slog.Logger) error {
	if k.NRI == "" {
		return nil
	}
	known, err := loadState(stateDir, proc.Default())
	if err != nil {
		return err
	}
	tree, err := cgroup.Detect(proc.Default().Proc)
	if err != nil {
		return err
	}
	err = nri.Release(ctx, nri.Options{Socket: k.NRI, Values: containerstart.Resolver{Pods: savedPods(known)}, V1: tree.VersionOf("cpu") == 1, Log: log})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ReportLeave tells the cluster that no agent runs on the node any more.
// version is that of tenond.
func (k Kubernetes) ReportLeave(ctx context.Context, version string) error {
	return nodereport.Leave(ctx, k.API, k.Node, version, time.Now())
}

// savedPods returns the list of pods that an earlier daemon saved.
type savedPods savedState

// Look and Hurry do nothing, because the saved list does not change.
func (savedPods) Look()  {}
func (savedPods) Hurry() {}

// Known returns the saved pods.
func (r savedPods) Known() kubelet.Known { return kubelet.Known{Pods: r.Pods, At: time.Now()} }
