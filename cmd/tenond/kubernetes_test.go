package main

import (
	"testing"

	"github.com/spf13/cobra"
)

func TestTheKubeletOfAnIPv6NodeHasAURL(t *testing.T) {
	for want, c := range map[string]struct {
		ip   string
		args []string
	}{
		"https://[fd00::1]:10250": {"fd00::1", nil},
		"https://192.0.2.1:10260": {"192.0.2.1", []string{"--kubelet-port=10260"}},
		"https://127.0.0.1:10250": {"", nil},
		"https://node-1:1":        {"fd00::1", []string{"--kubelet=https://node-1:1"}},
	} {
		var f clusterFlags
		root := &cobra.Command{Use: "tenond"}
		f.add(root)
		if err := root.ParseFlags(c.args); err != nil {
			t.Fatal(err)
		}
		if got := f.kubeletURL(c.ip); got != want {
			t.Errorf("%s with %q: %s, want %s", c.ip, c.args, got, want)
		}
	}
}
