package v1alpha1_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
)

// TestTheCRDsAreThoseOfTheTypes generates the CRDs with the command of the
// Makefile, and compares them with those in the repository.
func TestTheCRDsAreThoseOfTheTypes(t *testing.T) {
	if os.Getenv("TENON_TEST_STRICT") != "1" {
		t.Skip("builds controller-gen, which takes a minute where it was not built before: set TENON_TEST_STRICT=1")
	}
	root := filepath.Join("..", "..")
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	if err != nil {
		t.Fatal(err)
	}
	tool := regexp.MustCompile(`sigs\.k8s\.io/controller-tools/cmd/controller-gen@\S+`).FindString(string(makefile))
	out := t.TempDir()
	made := exec.Command("go", "run", tool, "crd", "paths=./api/...", "output:crd:dir="+out)
	made.Dir = root
	if text, err := made.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	fresh, err := filepath.Glob(filepath.Join(out, "*.yaml"))
	if err != nil || len(fresh) < 2 {
		t.Fatalf("made %v: %v", fresh, err)
	}
	for _, path := range fresh {
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		have, err := os.ReadFile(filepath.Join(root, "deploy", "crds", filepath.Base(path)))
		if err != nil || !bytes.Equal(have, want) {
			t.Errorf("deploy/crds/%s is not what the types say (%v): make generate-api", filepath.Base(path), err)
		}
	}
}
