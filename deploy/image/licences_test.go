package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTheLabelNamesTheLicencesOfWhatIsInside checks that an image whose programs
// contain the BPF objects has the label, and no other one.
func TestTheLabelNamesTheLicencesOfWhatIsInside(t *testing.T) {
	for _, p := range products {
		contains := false
		for _, name := range p.programs {
			cmd := exec.Command("go", "list", "-deps", "./cmd/"+name)
			cmd.Dir = filepath.Join("../..", p.module)
			text, err := cmd.Output()
			if err != nil {
				t.Skipf("go list does not run here: %v", err)
			}
			for _, objects := range []string{"exchange", "rqdelay", "scx"} {
				contains = contains || strings.Contains(string(text), "/internal/kernel/"+objects+"\n")
			}
		}
		if label := p.licence(); strings.Contains(label, "GPL-2.0-only") != contains || !strings.Contains(label, "Apache-2.0") {
			t.Errorf("%s has the label %s, and contains BPF objects: %v", p.name, label, contains)
		}
	}
}

func TestAModuleWithoutALicenceStopsTheImage(t *testing.T) {
	for name, found := range map[string]bool{
		"LICENSE": true, "LICENSE.txt": true, "LICENCE-MIT": true, "COPYING": true, "NOTICE.md": true, "license_test.go": false, "README": false, "licenses.md": false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("the text of it"), 0o644); err != nil {
			t.Fatal(err)
		}
		var all bytes.Buffer
		err := appendLicences(&all, "example.org/m v1", dir)
		if (err == nil) != found || found != strings.Contains(all.String(), "the text of it") || found != strings.Contains(all.String(), "example.org/m v1") {
			t.Errorf("%s: %v, %q", name, err, all.String())
		}
	}
}

func TestTheSBOMListsEachModule(t *testing.T) {
	o := order{version: "v1", out: t.TempDir(), created: time.Unix(1_700_000_000, 0).UTC()}
	modules := []module{{"example.org/a", "v1.2.3"}, {"example.org/b/v2", "v2.0.0"}}
	read := func(program string) string {
		t.Helper()
		if err := o.writeSBOM(products[0], "amd64", modules, []file{{"tenond", []byte(program)}}); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(o.out, "tenond-amd64.spdx.json"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	one := read("one")
	for _, want := range []string{"pkg:golang/example.org/a@v1.2.3", "pkg:golang/example.org/b/v2@v2.0.0", "SPDX-2.3", "2023-11-14T22:13:20Z", "Apache-2.0 AND GPL-2.0-only"} {
		if !strings.Contains(one, want) {
			t.Errorf("the list has no %s:\n%s", want, one)
		}
	}
	if one != read("one") || one == read("two") {
		t.Error("the same programs give other lists, or other programs the same one")
	}
}
