package scx

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// logStuck logs the kernel stacks of threads, to show what a scheduler that
// does not end waits for. These are its helper thread, threads in
// uninterruptible sleep, and BE threads.
func logStuck(t testing.TB) {
	t.Helper()
	stats, _ := filepath.Glob("/proc/[0-9]*/task/[0-9]*/stat") // cannot fail: the pattern is valid
	for _, file := range stats {
		data, err := os.ReadFile(file)
		if err != nil {
			continue // the thread has ended
		}
		name := string(data)[:strings.LastIndexByte(string(data), ')')+1]
		fields := strings.Fields(string(data)[len(name):])
		state, cpu, policy := fields[0], fields[36], fields[38] // proc(5)
		if state != "D" && policy != "7" && !strings.Contains(name, "sched_ext") {
			continue
		}
		stack, err := os.ReadFile(filepath.Join(filepath.Dir(file), "stack"))
		if err != nil {
			continue
		}
		trace := strings.NewReplacer("[<0>] ", "", "\n", " ").Replace(string(stack))
		t.Logf("%s in state %s on CPU %s by policy %s: %s", name, state, cpu, policy, trace)
	}
}
