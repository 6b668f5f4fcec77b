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
	// cpuState is the file with the policy of the kubelet's CPU manager and the
	// CPUs that it assigned (pkg/kubelet/cm/cpumanager).
	cpuState = "cpu_manager_state"
	// registry is the directory with the sockets of the kubelet's drivers.
	// cpuDrivers matches the sockets of the DRA driver that assigns CPUs
	// (kubernetes-sigs/dra-driver-cpu). During an update of the driver, there may
	// be two.
	registry   = "plugins_registry"
	cpuDrivers = "dra.cpu*.sock"
	// CPUDriver is the name of the DRA driver that assigns CPUs.
	CPUDriver = "dra.cpu"
)

// Files tells who binds CPUs on the node. This information comes from files of
// the kubelet, so it is there even if the kubelet's API does not answer.
type Files struct {
	// Policy is the policy of the kubelet's CPU manager, or empty if it was not
	// read.
	Policy string
	// Driver is CPUDriver if that driver is registered, otherwise empty.
	// DriverRead is false if the directory registry was not read.
	Driver     string
	DriverRead bool
}

// Files reads the files below the kubelet's root directory. A missing file is
// no error, because the kubelet creates the files when it starts.
func (c *Client) Files() (Files, error) {
	if c.root == "" {
		return Files{}, nil
	}
	policy, wrong := policyIn(filepath.Join(c.root, cpuState))
	f := Files{Policy: policy}
	sockets, err := os.ReadDir(filepath.Join(c.root, registry))
	if err == nil {
		f.DriverRead = true
		if slices.ContainsFunc(sockets, func(s fs.DirEntry) bool { is, _ := filepath.Match(cpuDrivers, s.Name()); return is }) { //nolint:errcheck // the pattern is valid
			f.Driver = CPUDriver
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		wrong = errors.Join(wrong, fmt.Errorf("read the drivers of the kubelet: %w", err))
	}
	return f, wrong
}

// policyIn reads the policy from the state file of a CPU manager.
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
