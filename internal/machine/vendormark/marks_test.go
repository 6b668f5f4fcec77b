package vendormark

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/kernel/cgroup"
	"tenon.sh/tenon/internal/machine/journal"
	"tenon.sh/tenon/internal/model/node"
)

// documented lists what the vendors document for their files: the text for each
// mark that all kernels with the file have.
var documented = map[node.Feature]map[node.Identity]string{
	node.FeatureGroupIdentity: {node.IdentityBE: "-1", node.IdentityNone: "0", node.IdentityHigh: "1", node.IdentityExpels: "2"},
	node.FeatureGroupPriority: {node.IdentityBE: "-1", node.IdentityNone: "0", node.IdentityHigh: "1"},
	node.FeatureQOSLevel:      {node.IdentityBE: "-1", node.IdentityNone: "0"},
}

// TestEveryVendorMarkCanBeWritten marks a cgroup on each kind of vendor's kernel,
// with plain files in place of the kernel. A mark that package cgroup does not
// know would fail only on such a kernel.
func TestEveryVendorMarkCanBeWritten(t *testing.T) {
	for _, v := range node.VendorMarks {
		t.Run(string(v.Can), func(t *testing.T) {
			dir := t.TempDir()
			put := func(file, text string) {
				t.Helper()
				file = filepath.Join(dir, file)
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			put("proc/self/mountinfo", fmt.Sprintf("31 24 0:28 / %s rw - cgroup2 cgroup2 rw\n", filepath.Join(dir, "v2")))
			put("v2/cgroup.controllers", "cpu\n")
			put("v2/cgroup.threads", "")
			put("v2/be/cpu.weight", "100\n")
			put("v2/be/cpu.idle", "0\n")
			put(filepath.Join("v2/be", string(v.Can)), "0\n")
			proc := filepath.Join(dir, "proc")
			tree, err := cgroup.Detect(proc)
			if err != nil {
				t.Fatal(err)
			}
			j, err := journal.Open(filepath.Join(dir, "journal"), "boot", journal.Session{PID: 1, Start: 1})
			if err != nil {
				t.Fatal(err)
			}
			idle := false
			marks := func() *Marks {
				return New(tree, proc, j, func(k node.Knob, _ node.Value) error {
					idle = k.File == node.FileCPUWeight
					return nil
				}, func(node.Knob) error { return nil })
			}
			k := node.Knob{Cgroup: "be", File: node.FileIdentity}
			if _, ok := documented[v.Can][node.IdentityBE]; !ok {
				t.Fatalf("the table has no value of %s for BE", v.Can)
			}
			for id, want := range documented[v.Can] {
				if err := marks().Write(k, id); err != nil {
					t.Fatal(err)
				}
				text, err := os.ReadFile(filepath.Join(dir, "v2/be", string(v.Can)))
				if got := strings.TrimSpace(string(text)); got != want || err != nil {
					t.Errorf("mark %v wrote %q, %v, want %q", id, got, err, want)
				}
				put(filepath.Join("v2/be", string(v.Can)), want+"\n")
				// These Marks do not remember what was requested.
				if got, err := marks().Read(k); got != node.Value(id) || err != nil {
					t.Errorf("%q reads as %v, %v, want %v", want, got, err, id)
				}
			}
			if idle != v.Idles {
				t.Errorf("the mark makes the cgroup idle: %t, want %t", idle, v.Idles)
			}
		})
	}
}
