package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"
)

// memory runs each scheduler in a process of its own.
func memory(ctx context.Context, o options) error {
	for _, name := range []string{stock, withPlugin} {
		for _, nodes := range o.nodes {
			cmd := exec.CommandContext(ctx, "/proc/self/exe", "-only", name, "-nodes", fmt.Sprint(nodes), "-bound", fmt.Sprint(o.bound))
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			if err := cmd.Run(); err != nil {
				return fmt.Errorf("%s, %d nodes: %w", name, nodes, err)
			}
		}
	}
	return nil
}

// memoryOf starts one scheduler, schedules some pods, and prints the memory
// that its process uses.
func memoryOf(ctx context.Context, o options) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	a, err := newArm(ctx, o.only, cluster(o.nodes[0], o.bound))
	if err != nil {
		return err
	}
	small := o
	small.pods, small.collect = 1000, true
	if _, err := a.block(ctx, small, 30, 0); err != nil {
		return err
	}
	time.Sleep(time.Second) // wait for the last events
	for range 2 {
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	rss, _, _ := strings.Cut(rest, "\n")
	fmt.Printf("%s, %d nodes, %d bound pods: heap %.1f MB, resident %s\n", o.only, o.nodes[0], o.bound, float64(m.HeapAlloc)/1e6, strings.TrimSpace(rss))
	return nil
}
