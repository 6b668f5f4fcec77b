package kubelet

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

const (
	// cpuState is the file in which the CPU manager of a kubelet keeps its
	// policy and the CPUs that it has assigned (pkg/kubelet/cm/cpumanager).
	cpuState = "cpu_manager_state"
	// registry is the directory in which the drivers of a kubelet have their
	// sockets. cpuDrivers matches the sockets of the DRA driver that assigns
	// CPUs (kubernetes-sigs/dra-driver-cpu). Two of them may exist during an
	// update.
	registry   = "plugins_registry"
	cpuDrivers = "dra.cpu*.sock"
	// CPUDriver is the name of the DRA driver that assigns CPUs.
	CPUDriver = "dra.cpu"
)

// Files contains what the files of a kubelet say about who binds CPUs on the
// node. They exist even if the API of the kubelet refuses or does not answer.
type Files struct {
	// Policy is the policy of the kubelet's CPU manager. It is empty if the
	// file was not read.
	Policy string
	// Driver is CPUDriver if that driver is registered, and otherwise empty. If
	// DriverRead is false, the directory was not read.
	Driver     string
	DriverRead bool
}

// Files reads the files of the kubelet below its root directory. A missing file
// is no error, because a kubelet that is about to start has none of them.
func (c *Client) Files() (Files, error) {
	if c.root == "" {
		return Files{}, nil
	}
	policy, wrong := policyIn(filepath.Join(c.root, cpuState))
	f := Files{Policy: policy}
	sockets, err := os.ReadDir(filepath.Join(c.root, registry))
	if err == nil {
		f.DriverRead = true
		if slices.ContainsFunc(sockets, func(s fs.DirEntry) bool { is, _ := filepath.Match(cpuDrivers, s.Name()); return is }) { // the pattern is valid, so there is no error
			f.Driver = CPUDriver
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		wrong = errors.Join(wrong, fmt.Errorf("read the drivers of the kubelet: %w", err))
	}
	return f, wrong
}

// policyIn reads the state of a CPU manager.
func policyIn(file string) (string, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	var state struct {
		Policy string `json:"policyName"`
	}
	if err == nil {
		err = json.Unmarshal(text, &state)
	}
	if err != nil {
		return "", fmt.Errorf("read the state of the kubelet's CPU manager in %s: %w", file, err)
	}
	return state.Policy, nil
}
