package tenon_test

import (
	"bufio"
	"os"
	"strings"
	"testing"
)

// TestTheSchedulerSharesPackages checks that the scheduler's module names the
// same version of each module as the test cluster's Kubernetes, so that a clean
// machine compiles Kubernetes once.
func TestTheSchedulerSharesPackages(t *testing.T) {
	cluster, scheduler := requiredModules(t, "test/cluster/build/k8s/go.mod"), requiredModules(t, "scheduler/go.mod")
	both := 0
	for module, version := range scheduler {
		if want, known := cluster[module]; known {
			both++
			if version != want {
				t.Errorf("scheduler/go.mod requires %s %s, and test/cluster/build/k8s/go.mod %s: exclude the later one, and run go mod tidy in scheduler", module, version, want)
			}
		}
	}
	if both < 50 {
		t.Errorf("%d modules are in both", both)
	}
}

// requiredModules returns the modules that a go.mod requires, with their
// versions.
func requiredModules(t *testing.T, path string) map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, inside := map[string]string{}, false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		line := lines.Text()
		if words := strings.Fields(line); inside && len(words) >= 2 {
			all[words[0]] = words[1]
		}
		inside = strings.HasPrefix(line, "require (") || inside && line != ")"
	}
	return all
}
