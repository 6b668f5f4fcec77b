package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/kubelet"
	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/model/unit"
)

// clusterFile is the file with the saved state of the cluster. A daemon needs
// it if it starts while both the API server and the kubelet are away.
const clusterFile = "kubernetes.json"

// savedCluster is the saved state of the cluster.
type savedCluster struct {
	Boot string `json:"boot_id"`
	// ConfigKnown says that Config has the last content of the ConfigMap. Keys
	// with faults are left out. HasConfig says that the ConfigMap exists.
	// Labels and Annotations are those of the node. UID is the uid of the node.
	ConfigKnown    bool              `json:"config_known,omitempty"`
	HasConfig      bool              `json:"has_config,omitempty"`
	Config         map[string]string `json:"config,omitempty"`
	ByNamespace    map[string]string `json:"by_namespace,omitempty"` // of kube.PodConfigMap
	Labels         map[string]string `json:"labels,omitempty"`
	Annotations    map[string]string `json:"annotations,omitempty"`
	UID            types.UID         `json:"uid,omitempty"`
	KubeletReserve unit.MilliCPU     `json:"kubelet_reserve_mcpu,omitempty"` // CPU that no pod may request
	// Facts is the report of the kubelet about itself.
	Facts kubelet.Facts `json:"facts,omitzero"`
	// PodsKnown says that Pods has the last list of the node's pods.
	PodsKnown bool         `json:"pods_known,omitempty"`
	Pods      []corev1.Pod `json:"pods,omitempty"`
}

// loadSavedCluster loads the state that an earlier daemon saved, if any. It
// drops pods of an earlier boot, because their cgroups no longer exist.
func loadSavedCluster(dir string, from proc.FS) (savedCluster, error) {
	boot, err := from.BootID()
	if err != nil {
		return savedCluster{}, err
	}
	fresh := savedCluster{Boot: boot}
	data, err := os.ReadFile(filepath.Join(dir, clusterFile))
	if errors.Is(err, fs.ErrNotExist) {
		return fresh, nil
	}
	if err != nil {
		return fresh, err
	}
	var k savedCluster
	if err := json.Unmarshal(data, &k); err != nil {
		return fresh, fmt.Errorf("%s: %w", clusterFile, err)
	}
	if k.Boot != boot {
		k.Boot, k.PodsKnown, k.Pods = boot, false, nil
	}
	return k, nil
}

// keep saves the state for the next daemon.
func (c *cluster) keep() {
	data, err := json.Marshal(c.last)
	if err != nil || bytes.Equal(data, c.saved) {
		return
	}
	path := filepath.Join(c.dir, clusterFile)
	if err = os.WriteFile(path+".next", data, 0o600); err == nil {
		err = os.Rename(path+".next", path)
	}
	if err != nil {
		c.log.Warn("cannot save the state of the cluster for the next tenond", "error", err)
		return
	}
	c.saved = data
}
