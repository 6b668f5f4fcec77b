package chart

import (
	"strings"
	"testing"
)

// TestTheChartNamesNoFamilyOfAddresses checks that each server listens on all addresses
// of its pod, and that no Service asks for IPv4 or IPv6: a cluster with either, or with
// both, gives what it has.
func TestTheChartNamesNoFamilyOfAddresses(t *testing.T) {
	servers, services := 0, 0
	for key, d := range mustRender(t, allOptions()) {
		if d.str("kind") == "Service" {
			services++
			for _, field := range []string{"clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"} {
				if v := d.value("spec", field); v != nil && v != "None" {
					t.Errorf("%s has %s: %v", key, field, v)
				}
			}
		}
		for _, c := range containers(d) {
			args, _ := c.value("args").([]any)
			for _, arg := range args {
				flag, address, _ := strings.Cut(arg.(string), "=")
				switch flag {
				case "--metrics", "--health":
					servers++
					if !strings.HasPrefix(address, ":") {
						t.Errorf("%s listens on %s", key, arg)
					}
				case "--bind-address", "--kubelet":
					t.Errorf("%s names an address: %s", key, arg)
				}
			}
		}
	}
	if servers != 3 || services == 0 {
		t.Errorf("%d servers and %d Services: the test looks in the wrong place", servers, services)
	}
}
