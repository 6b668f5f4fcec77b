package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/statedir"
	"tenon.sh/tenon/internal/model/unit"
)

// stateFile holds the saved state of the cluster. A daemon needs it if it
// starts while the API server and the kubelet are both away.
const stateFile = "kubernetes.json"

// savedState is the state of the cluster that is saved for the next daemon.
type savedState struct {
	Boot string `json:"boot_id"`
	// ConfigKnown means that Config is the last content of the ConfigMap, without
	// keys that have faults. HasConfig means that the ConfigMap exists. Labels,
	// Annotations and UID come from the Node object.
	ConfigKnown    bool              `json:"config_known,omitempty"`
	HasConfig      bool              `json:"has_config,omitempty"`
	LostConfig     bool              `json:"lost_config,omitempty"` // the ConfigMap existed, and does not exist any more
	Config         map[string]string `json:"config,omitempty"`
	ByNamespace    map[string]string `json:"by_namespace,omitempty"` // content of kube.PodConfigMap
	Labels         map[string]string `json:"labels,omitempty"`
	Annotations    map[string]string `json:"annotations,omitempty"`
	UID            types.UID         `json:"uid,omitempty"`
	KubeletReserve unit.MilliCPU     `json:"kubelet_reserve_mcpu,omitempty"` // CPU that no pod may request
	// Facts holds the facts that the kubelet reported about itself.
	Facts kubelet.Facts `json:"facts,omitzero"`
	// PodsKnown means that Pods is the last list of the node's pods.
	PodsKnown bool         `json:"pods_known,omitempty"`
	Pods      []corev1.Pod `json:"pods,omitempty"`
}

// loadState loads the state that an earlier daemon saved, if there is
// one. After a reboot it drops the pods, because their cgroups no longer exist.
func loadState(dir string, from proc.FS) (savedState, error) {
	boot, err := from.BootID()
	if err != nil {
		return savedState{}, err
	}
	fresh := savedState{Boot: boot}
	data, err := statedir.ReadFile(filepath.Join(dir, stateFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	if err != nil {
		return fresh, err
	}
	var k savedState
	if err := json.Unmarshal(data, &k); err != nil {
		return fresh, fmt.Errorf("%s: %w", stateFile, err)
	}
	if k.Boot != boot {
		k.Boot, k.PodsKnown, k.Pods = boot, false, nil
	}
	return k, nil
}

// keep saves the state for the next daemon if it has changed.
func (c *Follower) keep() {
	data, err := json.Marshal(c.last)
	if err != nil || bytes.Equal(data, c.saved) {
		return
	}
	if err := statedir.WriteFile(filepath.Join(c.dir, stateFile), data); err != nil {
		c.log.Warn("cannot save the state of the cluster for the next tenond", "error", err)
		return
	}
	c.saved = data
}
