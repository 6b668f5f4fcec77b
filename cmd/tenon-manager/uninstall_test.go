package main

import (
	"strings"
	"testing"
)

func TestUninstallWantsADaemonSet(t *testing.T) {
	for _, name := range []string{"tenond", "/tenond", "a/b/c", ""} {
		root := newRootCommand()
		root.SetArgs([]string{"uninstall", "--daemonset=" + name})
		if err := root.Execute(); err == nil || !strings.Contains(err.Error(), "want NAMESPACE/NAME") {
			t.Errorf("--daemonset=%s: %v", name, err)
		}
	}
}
