package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/schedtrace"
)

func TestTheTableAddsSeedsAndComparesWithinThem(t *testing.T) {
	cell := func(means string, seed, wakes, lateBE int, waited time.Duration) meansResult {
		r := meansResult{Kernel: "6.18.15+deb13", CPUs: 8, Threads: 4, Means: means, Seed: seed}
		r.Wakes, r.Late.BE, r.Waited.BE = wakes, lateBE, waited
		r.CPU = schedtrace.By[time.Duration]{BE: 3 * time.Second, Idle: time.Second}
		return r
	}
	var text strings.Builder
	text.WriteString("# a millisecond is 1 loop\n")
	for _, r := range []meansResult{
		cell("default", 1, 100, 20, 20*time.Millisecond), cell("default", 2, 300, 20, 30*time.Millisecond),
		cell("floor", 1, 100, 4, 10*time.Millisecond), cell("floor", 2, 100, 4, 20*time.Millisecond),
	} {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(append(line, '\n'))
	}
	file := filepath.Join(t.TempDir(), "means.jsonl")
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := printTable(&out, []string{file}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"| 6.18 | 8 | 4 | – | 100 / 0 / 0 | 40 / 0 / 0 | – | – | – |", // 40 of 400 and 8 of 200
		"| 6.18 | 8 | 4 | – | 125 | 150 | – | – | – |",                // 50 ms of 400 and 30 ms of 200
		"| 6.18 | 8 | 4 | – | 75 | 75 | – | – | – |",
		"| 6.18 | floor to default | 2 | 1 | 1.00 | 0.50 | 2.00 | 1.00 |",
		"| all | floor to default | 2 | 1 | 1.00 | 0.50 | 2.00 | 1.00 |", // 100 to 200 µs, 200 to 100 µs
	} {
		if !strings.Contains(out.String(), want+"\n") {
			t.Errorf("no line %q in\n%s", want, &out)
		}
	}
}

func TestATableNeedsResults(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, files := range map[string][]string{
		"want files":   nil,
		"no results":   {write("empty", "# nothing\n")},
		"no such file": {filepath.Join(dir, "none")},
		"broken":       {write("broken", "{\"kernel\": 6}\n")},
	} {
		if err := printTable(&strings.Builder{}, files); err == nil || name != "broken" && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestTheKubeletsWeights(t *testing.T) {
	// For requests of 0, 250m, 1, 8 and 256 CPUs, the kubelet sets these values
	// of cpu.weight.
	for shares, want := range map[int]int{0: 1, 2: 1, 256: 10, 1024: 39, 8192: 313, 262144: 10000} {
		if got := kubeletWeight(shares); got != want {
			t.Errorf("weight of %d shares: %d, want %d", shares, got, want)
		}
	}
}
