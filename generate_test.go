package tenon_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// generated lists the packages with objects that make generate makes.
var generated = []string{"internal/kernel/exchange", "internal/kernel/rqdelay", "internal/kernel/scx"}

// compiler lists the programs that make generate needs; scripts/install-deps.sh
// test installs them.
var compiler = []string{"clang-19", "llvm-strip-19"}

// TestObjectsAreThoseOfTheSources compiles bpf/ in a copy of the tree without
// the objects, and compares the objects. The kernel must get the code of the
// sources in this repository.
func TestObjectsAreThoseOfTheSources(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles for some seconds")
	}
	needCompiler(t)
	t.Parallel()
	copied := t.TempDir()
	committed := map[string][]byte{}
	for _, dir := range append([]string{"bpf"}, generated...) {
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name := filepath.Join(dir, f.Name())
			if f.IsDir() {
				continue
			}
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if isGenerated(name) {
				committed[name] = text
			} else {
				write(t, filepath.Join(copied, name), text)
			}
		}
	}
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(copied, name), text)
	}
	cmd := exec.Command("go", "generate")
	for _, p := range generated {
		cmd.Args = append(cmd.Args, "./"+p)
	}
	cmd.Dir = copied
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, said)
	}
	made := map[string][]byte{}
	for _, dir := range generated {
		files, err := filepath.Glob(filepath.Join(copied, dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			name, err := filepath.Rel(copied, f)
			if err != nil {
				t.Fatal(err)
			}
			if !isGenerated(name) {
				continue
			}
			if made[name], err = os.ReadFile(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if len(made) == 0 {
		t.Fatal("nothing was made")
	}
	for _, fault := range differences(committed, made) {
		t.Errorf("%s: run make generate and commit the result", fault)
	}
}

func isGenerated(name string) bool { return strings.Contains(filepath.Base(name), "_bpfel.") }

// differences lists the differences between a and b.
func differences(a, b map[string][]byte) []string {
	var faults []string
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		was, committed := a[name]
		is, made := b[name]
		switch {
		case !committed:
			faults = append(faults, name+" is missing")
		case !made:
			faults = append(faults, name+" has no source")
		case !bytes.Equal(was, is):
			faults = append(faults, fmt.Sprintf("%s comes from other sources or another compiler: %d bytes, compiled again %d", name, len(was), len(is)))
		}
	}
	return faults
}

func TestObjectsOfOtherSourcesAreFound(t *testing.T) {
	got := differences(
		map[string][]byte{"same": []byte("1"), "changed": []byte("1"), "gone": nil},
		map[string][]byte{"same": []byte("1"), "changed": []byte("2"), "new": nil},
	)
	want := []string{"changed comes from other sources or another compiler: 1 bytes, compiled again 1", "gone has no source", "new is missing"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// needCompiler skips the test if bpf/ cannot be compiled. With
// TENON_TEST_STRICT=1 it fails the test instead.
func needCompiler(t *testing.T) {
	t.Helper()
	lacks := func(why string) {
		t.Helper()
		if os.Getenv("TENON_TEST_STRICT") == "1" {
			t.Fatalf("TENON_TEST_STRICT is set, and bpf/ cannot be compiled: %s", why)
		}
		t.Skipf("bpf/ cannot be compiled: %s", why)
	}
	for _, name := range compiler {
		if _, err := exec.LookPath(name); err != nil {
			lacks(err.Error())
		}
	}
	if _, err := os.Stat("/usr/include/bpf/bpf_helpers.h"); err != nil {
		lacks("libbpf-dev is not installed: " + err.Error())
	}
	list := exec.Command("go", "list", "github.com/cilium/ebpf/cmd/bpf2go")
	list.Env = append(os.Environ(), "GOPROXY=off") // download nothing
	if said, err := list.CombinedOutput(); err != nil {
		lacks(fmt.Sprintf("%v: %v: %s", list.Args, err, said)) // a user without Go's caches gets this error, too
	}
	said, err := exec.Command(compiler[0], "--version").Output()
	if err != nil {
		lacks(err.Error())
	}
	first, _, _ := strings.Cut(string(said), "\n")
	t.Log(first)
}

func write(t *testing.T, file string, text []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
