package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestThePluginCanBeBuiltIntoAnotherScheduler creates a module outside of this
// repository as scheduler/README.md describes it, and builds it.
func TestThePluginCanBeBuiltIntoAnotherScheduler(t *testing.T) {
	if testing.Short() {
		t.Skip("links a kube-scheduler")
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	page := read("scheduler/README.md")
	words := []string{
		"command := app.NewSchedulerCommand(app.WithPlugin(plugin.Name, plugin.New))",
		"require tenon.sh/tenon/scheduler v0.0.0", "replace tenon.sh/tenon => ../tenon\n", "replace tenon.sh/tenon/scheduler => ../tenon/scheduler\n",
	}
	module := strings.Replace(read("scheduler/go.mod"), "module tenon.sh/tenon/scheduler", "module example.org/scheduler", 1)
	module = strings.Replace(module, "replace tenon.sh/tenon => ../\n", "", 1)
	for _, line := range words {
		if !strings.Contains(page, line) {
			t.Fatalf("scheduler/README.md does not say %q", line)
		}
		if line != words[0] {
			module += "\n" + line
		}
	}
	home := t.TempDir()
	if err := os.Symlink(root, filepath.Join(home, "tenon")); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go.mod": module, "go.sum": read("scheduler/go.sum"),
		"main.go": `package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"tenon.sh/tenon/scheduler/plugin"
)

func main() {
	` + words[0] + `
	os.Exit(cli.Run(command))
}
`,
	} {
		if err := os.MkdirAll(filepath.Join(home, "own"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(home, "own", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-mod=mod", "-o", "own-scheduler", ".")
	build.Dir = filepath.Join(home, "own")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(build.Dir, "own-scheduler"), "--help").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--config") {
		t.Errorf("%v\n%.500s", err, out)
	}
}
