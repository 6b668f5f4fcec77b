package cgroup

import (
	"errors"
	"testing"
)

// TestGroupMadeAnewIsReadAnew removes a group and makes it again. Reading the
// open file of the removed group gives ENODEV. Then the counters of the new
// group must be read.
func TestGroupMadeAnewIsReadAnew(t *testing.T) {
	plain, path := kernelGroup(t)
	tree := plain.KeepOpen(512)
	defer tree.Close(path)
	if _, err := tree.CPUUse(path); err != nil {
		t.Fatal(err)
	}
	if err := tree.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := tree.CPUUse(path); !errors.Is(err, ErrGone) {
		t.Errorf("a removed group reads %v", err)
	}
	if err := tree.Make(path); err != nil {
		t.Fatal(err)
	}
	if u, err := tree.CPUUse(path); err != nil || u.Usage != 0 {
		t.Errorf("the new group of the same name gives %+v, %v", u, err)
	}
}

// BenchmarkCPUUse measures CPUUse in two variants: the files stay open, or are
// opened for each reading.
func BenchmarkCPUUse(b *testing.B) {
	plain, err := Detect("/proc")
	if err != nil {
		b.Skip(err)
	}
	for name, tree := range map[string]*Tree{"kept": plain.KeepOpen(512), "opened": plain} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tree.CPUUse(""); err != nil {
					b.Skip(err)
				}
			}
		})
	}
}
