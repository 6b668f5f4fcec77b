package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"time"

	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/runtimes/nri"
)

// ReleaseContainers gives containers back the values that the kubelet has given
// them, as far as a daemon that kept its state in stateDir has set others through
// the container runtime: those the journal does not know. A runtime that offers
// no NRI has none.
func (k Kubernetes) ReleaseContainers(ctx context.Context, stateDir string, log *slog.Logger) error {
	if k.NRI == "" {
		return nil
	}
	known, err := loadKept(stateDir, proc.Default())
	if err != nil {
		return err
	}
	tree, err := cgroup.Detect(proc.Default().Proc)
	if err != nil {
		return err
	}
	err = nri.Release(ctx, nri.Options{Socket: k.NRI, Values: starts{recalled(known)}, V1: tree.VersionOf("cpu") == 1, Log: log})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// recalled are pods of which an earlier daemon knew.
type recalled kept

// Look and Hurry ask nobody: there is nobody to ask any more.
func (recalled) Look()  {}
func (recalled) Hurry() {}

// Known are the pods as they were known last.
func (r recalled) Known() kubelet.Known { return kubelet.Known{Pods: r.Pods, At: time.Now()} }
