package published

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"tenon.sh/tenon/test/vm"
)

// supportPage says what was tried.
const supportPage = root + "docs/support.md"

// firstOf returns the group of a pattern in a file.
func firstOf(t *testing.T, file, pattern string) string {
	t.Helper()
	text, err := os.ReadFile(root + file)
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?m)" + pattern).FindStringSubmatch(string(text))
	if found == nil {
		t.Fatalf("%s has nothing like %s", file, pattern)
	}
	return found[1]
}

// testsOf returns the names of the tests of a package, from its sources.
func testsOf(t *testing.T, dir string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(root + dir + "/*_test.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", dir, err)
	}
	named, all := regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`), map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, match := range named.FindAllStringSubmatch(string(text), -1) {
			all[match[1]] = true
		}
	}
	return all
}

// TestSupportSaysWhatWasTried makes the table of clusters from the lists of tests that
// run on them, and the versions from the files that build or fetch the programs.
func TestSupportSaysWhatWasTried(t *testing.T) {
	kernel := firstOf(t, "test/vm/kernel.sh", `^series=\$\{1:-([\d.]+)\}`)
	kubernetes := firstOf(t, "test/cluster/build/k8s/go.mod", `^\tk8s\.io/kubernetes v([\d.]+)$`)
	inCluster, inGuests := testsOf(t, "test/cluster"), testsOf(t, "test/vm")
	m := newTable("Linux", "cgroups", "cgroup driver", "Kubernetes", "where", "tests", "runs in")
	m.line("that of the machine", "v1", "cgroupfs", kubernetes, "`test/cluster`", "all of the package that this machine can run", "`make test`, a part for each commit; `make soak`")
	add := func(run vm.ClusterRun, tests []string, in string) {
		if len(tests) == 0 {
			return
		}
		driver := "cgroupfs"
		if run.Systemd {
			driver = "systemd"
		}
		var names []string
		for _, name := range tests {
			if !inCluster[name] {
				t.Errorf("%s runs %s, which test/cluster has not", run.Test, name)
			}
			names = append(names, "`"+name+"`")
		}
		if !inGuests[run.Test] {
			t.Errorf("test/vm has no %s", run.Test)
		}
		m.line(kernel, "v2", driver, kubernetes, "`"+run.Test+"`", strings.Join(names, ", "), in)
	}
	for _, run := range vm.ClusterRuns {
		add(run, run.Commit, "`make test`, for some commits; `make soak`")
		add(run, run.Soak, "`make soak`")
	}
	compareTables(t, supportPage, map[string]string{"clusters": m.String()})
}
