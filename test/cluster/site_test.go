package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// The tests of this package name settings by the files of cgroup v1, which the machine
// of the tests has. In a guest with cgroup v2, this file says where a setting is there,
// and how the file of v1 would write its value. The tests themselves know one version.

// isUnified reports whether this machine has cgroup v2 alone.
func isUnified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}

// A fileOnV2 is the file of cgroup v2 for a setting, and how v1 writes its content.
type fileOnV2 struct {
	file  string
	words func(string) (string, error)
}

var placesOnV2 = map[string]fileOnV2{
	"cpu.cfs_quota_us":      {"cpu.max", func(s string) (string, error) { return partOfMax(s, 0, "-1") }},
	"cpu.cfs_period_us":     {"cpu.max", func(s string) (string, error) { return partOfMax(s, 1, "") }},
	"cpu.cfs_burst_us":      {"cpu.max.burst", same},
	"cpu.shares":            {"cpu.weight", leastShares},
	"memory.limit_in_bytes": {"memory.max", func(s string) (string, error) { return partOfMax(s, 0, "9223372036854771712") }},
	"cpuacct.usage":         {"cpu.stat", usageOf},
}

func same(s string) (string, error) { return s, nil }

// partOfMax returns a field of cpu.max or memory.max. max has the given word in v1.
func partOfMax(s string, field int, max string) (string, error) {
	f := strings.Fields(s)
	switch {
	case field >= len(f):
		return "", fmt.Errorf("%q has no field %d", s, field)
	case f[field] == "max":
		return max, nil
	}
	return f[field], nil
}

// leastShares returns the least shares of v1 for the least weight of v2. Other
// weights have no exact shares.
func leastShares(s string) (string, error) {
	if s == "1" {
		return "2", nil
	}
	return "", fmt.Errorf("no test compares shares with a weight of %s", s)
}

func usageOf(s string) (string, error) {
	for line := range strings.Lines(s) {
		if micro, is := strings.CutPrefix(line, "usage_usec "); is {
			n, err := strconv.ParseInt(strings.TrimSpace(micro), 10, 64)
			return strconv.FormatInt(1000*n, 10), err
		}
	}
	return "", errors.New("cpu.stat has no usage_usec")
}

// setting reads a setting of a cgroup of the node by its name on cgroup v1.
func (n *Node) setting(controller, group, file string) (string, error) {
	at, words := file, same
	if p, has := placesOnV2[file]; has && isUnified() {
		at, words = p.file, p.words
	}
	text, err := os.ReadFile(filepath.Join(n.Cgroup(controller, group), at))
	if err != nil {
		return "", err
	}
	return words(strings.TrimSpace(string(text)))
}

// filesOfPods are the files of a pod's cgroup that Tenon may write, by controller.
func filesOfPods() map[string][]string {
	if isUnified() {
		return map[string][]string{"": unifiedFiles}
	}
	return map[string][]string{
		"cpu": {"cpu.shares", "cpu.cfs_quota_us", "cpu.cfs_period_us", "cpu.cfs_burst_us", "cpu.idle"}, "memory": {"memory.limit_in_bytes"}, "cpuset": {"cpuset.cpus", "cpuset.mems"},
	}
}

// isWeightOfBurstable reports whether a file is the weight of the burstable level,
// which the kubelet computes from its pods every minute.
func isWeightOfBurstable(file string) bool {
	dir, name := filepath.Base(filepath.Dir(file)), filepath.Base(file)
	return (dir == "burstable" || dir == "kubepods-burstable.slice") && (name == "cpu.shares" || name == "cpu.weight")
}

// sayLimits is a command of a container that prints its memory limit, and then its
// quota.
func sayLimits() string {
	if isUnified() {
		return "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/cpu.max"
	}
	return "cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/cpu/cpu.cfs_quota_us"
}

func TestSettingsOfV2InTheWordsOfV1(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"cpu.cfs_quota_us", "max 100000", "-1"}, {"cpu.cfs_quota_us", "50000 100000", "50000"}, {"cpu.cfs_period_us", "max 100000", "100000"},
		{"memory.limit_in_bytes", "max", "9223372036854771712"}, {"memory.limit_in_bytes", "4096", "4096"}, {"cpu.shares", "1", "2"},
		{"cpuacct.usage", "usage_usec 12\nuser_usec 9\n", "12000"}, {"cpu.cfs_burst_us", "7", "7"},
	} {
		if got, err := placesOnV2[c.file].words(c.text); got != c.want || err != nil {
			t.Errorf("%s of %q is %q (%v), want %q", c.file, c.text, got, err, c.want)
		}
	}
	if got, err := placesOnV2["cpu.shares"].words("39"); err == nil {
		t.Errorf("a weight of 39 is %s shares", got)
	}
}
