package cluster

import (
	"testing"
	"time"
)

// TestUsageIsTheRateBetweenTwoReadings checks that the rate uses the kubelet's
// timestamps and not the times of the requests.
func TestUsageIsTheRateBetweenTwoReadings(t *testing.T) {
	const pod = `{container="a",namespace="x",pod="p } q"}`
	first := parseReading("# HELP node_cpu_usage_seconds_total [STABLE] seconds\n" +
		"node_cpu_usage_seconds_total 10.5 1000\n" +
		"node_memory_working_set_bytes 1048576 1000\n" +
		"container_cpu_usage_seconds_total" + pod + " 1 1000\n" +
		"scrape_error 0\n")
	second := parseReading("node_cpu_usage_seconds_total 12.5 5000\n" +
		"node_memory_working_set_bytes 2.097152e+06 5000\n" +
		"container_cpu_usage_seconds_total" + pod + " 2 11000\n")
	s := &metricsServer{last: map[string]reading{"n": second}, old: map[string]reading{"n": first}}

	use, now, window, ok := s.usage("n", "node_cpu_usage_seconds_total", "node_memory_working_set_bytes")
	if !ok || use["cpu"] != "500000000n" || use["memory"] != "2048Ki" || window != 4*time.Second || now.at != time.UnixMilli(5000) {
		t.Errorf("node: %v over %v at %v, %v", use, window, now.at, ok)
	}
	use, _, window, ok = s.usage("n", "container_cpu_usage_seconds_total"+pod, "absent")
	if !ok || use["cpu"] != "100000000n" || window != 10*time.Second {
		t.Errorf("container: %v over %v, %v", use, window, ok)
	}
	if _, _, _, ok := s.usage("n", "scrape_error", ""); ok {
		t.Error("a metric without a time has a rate")
	}
	s.take("n", second)
	if _, now, window, ok := s.usage("n", "node_cpu_usage_seconds_total", ""); !ok || window != 4*time.Second || now.at != time.UnixMilli(5000) {
		t.Errorf("the node's old reading again: over %v at %v, %v", window, now.at, ok)
	}
	s.take("n", parseReading("node_cpu_usage_seconds_total 15.5 8000\n"))
	if use, _, window, ok := s.usage("n", "node_cpu_usage_seconds_total", ""); !ok || use["cpu"] != "1000000000n" || window != 3*time.Second {
		t.Errorf("a new one: %v over %v, %v", use, window, ok)
	}
	s.last["n"], s.old["n"] = second, second
	if _, _, _, ok := s.usage("n", "node_cpu_usage_seconds_total", ""); ok {
		t.Error("the same reading twice has a rate")
	}
}
