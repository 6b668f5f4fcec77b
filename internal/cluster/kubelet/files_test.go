package kubelet

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
)

// rootOf makes the root directory of a kubelet.
func rootOf(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

// TestTheFilesOfAKubeletSayWhoBindsCPUs checks various contents of a kubelet's
// root directory. A fact is not known if its file is missing or cannot be read.
func TestTheFilesOfAKubeletSayWhoBindsCPUs(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  Files
		fault string
	}{
		"nothing": {nil, Files{}, ""},
		"no policy": {map[string]string{cpuState: `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`},
			Files{Policy: "none"}, ""},
		"the static policy": {map[string]string{cpuState: `{"policyName":"static","defaultCpuSet":"0-7","entries":{"u":{"c":"2-3"}},"checksum":14413152}`},
			Files{Policy: "static"}, ""},
		"a driver": {map[string]string{cpuState: `{"policyName":"none"}`, "plugins_registry/dra.cpu-reg.sock": ""},
			Files{"none", CPUDriver, true}, ""},
		"a driver during an update": {map[string]string{"plugins_registry/dra.cpu-0a1b-reg.sock": ""}, Files{"", CPUDriver, true}, ""},
		"another driver":            {map[string]string{"plugins_registry/gpu.example.com-reg.sock": ""}, Files{"", "", true}, ""},
		"a torn file":               {map[string]string{cpuState: `{"policyNa`, "plugins_registry/dra.cpu-reg.sock": ""}, Files{"", CPUDriver, true}, "unexpected end of JSON input"},
		"a file for the folder":     {map[string]string{cpuState: `{"policyName":"static"}`, "plugins_registry": ""}, Files{Policy: "static"}, "not a directory"},
	} {
		k, err := Open(Options{URL: "https://127.0.0.1", As: &rest.Config{}, Root: rootOf(t, c.files)})
		if err != nil {
			t.Fatal(err)
		}
		files, err := k.Files()
		if files != c.want || (err != nil) != (c.fault != "") || err != nil && !strings.Contains(err.Error(), c.fault) {
			t.Errorf("%s: %+v, %v; want %+v and %q", name, files, err, c.want, c.fault)
		}
	}
}

// A refusingKubelet is a kubelet whose API refuses, but whose files can be
// read.
type refusingKubelet struct {
	err   error
	files Files
}

func (c refusingKubelet) Pods(context.Context) ([]corev1.Pod, bool, error) { return nil, false, c.err }
func (c refusingKubelet) Facts(context.Context) (Facts, error)             { return Facts{}, c.err }
func (c refusingKubelet) Files() (Files, error)                            { return c.files, nil }

// TestAKubeletWithoutAnAPIIsKnownByItsFiles checks a kubelet whose API does not
// answer. Tenon must know whether it binds CPUs as soon as Tenon has a list of
// pods. If it does, Tenon must leave the CPUs to it.
func TestAKubeletWithoutAnAPIIsKnownByItsFiles(t *testing.T) {
	for _, err := range []error{ErrRefused, errors.New("connection refused"), context.DeadlineExceeded} {
		s, _ := watch(t, refusingKubelet{err, Files{Policy: "static"}}, &fakeStandIn{pod: "a"}, time.Minute)
		eventually(t, "the pods are those of the API server", func() bool { return s.Known().From == "API server" })
		if f := s.Known().Facts; f != (Facts{CPUManagerPolicy: "static"}) {
			t.Errorf("%v: %+v", err, f)
		}
	}
}

// TestFactsThatAreNotReadStay checks that Tenon keeps the last known facts
// while a file is missing for a moment, because the kubelet still binds CPUs.
func TestFactsThatAreNotReadStay(t *testing.T) {
	before := Facts{CgroupDriver: "systemd", CPUManagerPolicy: "static", CPUDriver: CPUDriver, ReservedCPUs: "0"}
	without := func(f Facts, change func(*Facts)) Facts { change(&f); return f }
	for name, c := range map[string]struct {
		configuration *Facts
		files         Files
		want          Facts
	}{
		"no file": {nil, Files{}, before},
		"the driver alone": {nil, Files{DriverRead: true},
			without(before, func(f *Facts) { f.CPUDriver = "" })},
		"the policy alone": {nil, Files{Policy: "none"},
			without(before, func(f *Facts) { f.CPUManagerPolicy = "none" })},
		"the configuration alone": {&Facts{CgroupDriver: "cgroupfs", CPUManagerPolicy: "none"}, Files{},
			Facts{CgroupDriver: "cgroupfs", CPUManagerPolicy: "none", CPUDriver: CPUDriver}},
		"the configuration and an old file": {&Facts{CPUManagerPolicy: "none"}, Files{Policy: "static", DriverRead: true},
			Facts{CPUManagerPolicy: "none"}},
	} {
		changes := 0
		s := NewSource(nil, nil, time.Minute, slog.New(slog.DiscardHandler), func() { changes++ })
		s.Assume(before)
		s.store(c.configuration, c.files)
		if got := s.Known().Facts; got != c.want || (changes > 0) != (got != before) {
			t.Errorf("%s: %+v after %d changes, want %+v", name, got, changes, c.want)
		}
	}
}
