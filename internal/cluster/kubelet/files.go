package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

const (
	// cpuState is the file in which the CPU manager of a kubelet keeps its
	// policy and what it has assigned (pkg/kubelet/cm/cpumanager).
	cpuState = "cpu_manager_state"
	// cpuDrivers matches the sockets at which kubelets find the DRA driver that
	// assigns CPUs (kubernetes-sigs/dra-driver-cpu). There may be two of them
	// during an update.
	cpuDrivers = "plugins_registry/dra.cpu*.sock"
	// CPUDriver is the name of that driver.
	CPUDriver = "dra.cpu"
)

// filesOf reads below the root directory of the kubelet who binds CPUs on this
// node: the policy of the kubelet's CPU manager, empty if the file is missing,
// and whether the driver CPUDriver is registered. A kubelet that refuses its API
// has these files, too.
func filesOf(root string) (policy string, driver bool, err error) {
	if root == "" {
		return "", false, nil
	}
	if sockets, _ := filepath.Glob(filepath.Join(root, cpuDrivers)); len(sockets) > 0 { // the pattern is valid
		driver = true
	}
	text, err := os.ReadFile(filepath.Join(root, cpuState))
	if errors.Is(err, fs.ErrNotExist) {
		return "", driver, nil
	}
	var state struct {
		Policy string `json:"policyName"`
	}
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		return "", driver, fmt.Errorf("read the state of the kubelet's CPU manager in %s: %w", filepath.Join(root, cpuState), err)
	}
	return state.Policy, driver, nil
}
