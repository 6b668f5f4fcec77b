package pack

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTheLabelNamesTheLicencesOfWhatIsInside checks that an image whose programs
// contain the BPF objects has the label, and no other one.
func TestTheLabelNamesTheLicencesOfWhatIsInside(t *testing.T) {
	for _, p := range slices.Concat(Images, []Product{Machine, Plugin}) {
		contains := false
		for _, name := range p.Programs {
			cmd := exec.Command("go", "list", "-deps", "./cmd/"+name)
			cmd.Dir = filepath.Join("../..", p.Module)
			var said bytes.Buffer
			cmd.Stderr = &said
			text, err := cmd.Output()
			if err != nil && os.Getenv("GOPROXY") == "off" && os.Getenv("TENON_TEST_STRICT") == "" {
				t.Skipf("go list finds no modules of this user, who may fetch none (GOPROXY=off): %v", err)
			}
			if err != nil {
				t.Fatalf("%v in %s: %v\n%s", cmd, cmd.Dir, err, said.String())
			}
			for _, objects := range []string{"exchange", "rqdelay", "scx"} {
				contains = contains || strings.Contains(string(text), "/internal/kernel/"+objects+"\n")
			}
		}
		if label := p.licence(); strings.Contains(label, "GPL-2.0-only") != contains || !strings.Contains(label, "Apache-2.0") {
			t.Errorf("%s has the label %s, and contains BPF objects: %v", p.Name, label, contains)
		}
	}
}

// mit is the text of a licence that is allowed.
const mit = `Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the following conditions:
The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.
THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`

func TestAModuleWithoutALicenceStopsTheRelease(t *testing.T) {
	for name, found := range map[string]bool{
		"LICENSE": true, "LICENSE.txt": true, "LICENCE-MIT": true, "COPYING": true, "NOTICE.md": false, "license_test.go": false, "README": false, "licenses.md": false,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, name), []byte("Copyright (c) 2026 A\n\n"+mit), 0o644); err != nil {
			t.Fatal(err)
		}
		var all bytes.Buffer
		licence, err := appendLicences(&all, Module{Path: "example.org/m", Version: "v1"}, dir)
		if (err == nil) != found || found != (licence == "MIT") {
			t.Errorf("%s: %q, %v", name, licence, err)
		}
		if found && (!strings.Contains(all.String(), mit) || !strings.Contains(all.String(), "example.org/m v1")) {
			t.Errorf("%s: the text is not kept: %q", name, all.String())
		}
	}
}

// TestALicenceThatIsNotAllowedStopsTheRelease uses the text of the GPL that is in this
// repository, alone and behind a licence that is allowed.
func TestALicenceThatIsNotAllowedStopsTheRelease(t *testing.T) {
	gpl, err := os.ReadFile("../../bpf/COPYING")
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"alone": string(gpl), "behind another": mit + string(gpl), "unknown": strings.Repeat("All that is mine stays mine. ", 40), "mostly unknown": mit + strings.Repeat("All that is mine stays mine. ", 40)} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "LICENSE"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if licence, err := appendLicences(&bytes.Buffer{}, Module{Path: "example.org/m", Version: "v1"}, dir); err == nil {
			t.Errorf("%s: allowed as %s", name, licence)
		}
	}
}

func TestTheSBOMListsEachModule(t *testing.T) {
	o, out := Order{Version: "v1", Created: time.Unix(1_700_000_000, 0).UTC()}, t.TempDir()
	read := func(p Product, file, program string) string {
		t.Helper()
		b := Build{
			Product: p, Platform: Platform{"linux", "amd64"}, Programs: []File{{"tenond", []byte(program), 0o755}},
			Modules: []Module{{"example.org/a", "v1.2.3", "MIT"}, {"example.org/b/v2", "v2.0.0", "ISC"}, {standard, "go1.26.8", "BSD-3-Clause"}},
		}
		if err := o.WriteSBOM(b, out); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(out, file))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	one := read(Images[0], "tenond-amd64.spdx.json", "one")
	for _, want := range []string{
		"pkg:golang/example.org/a@v1.2.3", "pkg:golang/example.org/b/v2@v2.0.0", "pkg:golang/stdlib@1.26.8", `"licenseDeclared": "ISC"`,
		"SPDX-2.3", "2023-11-14T22:13:20Z", "Apache-2.0 AND GPL-2.0-only",
	} {
		if !strings.Contains(one, want) {
			t.Errorf("the list has no %s:\n%s", want, one)
		}
	}
	if one != read(Images[0], "tenond-amd64.spdx.json", "one") || one == read(Images[0], "tenond-amd64.spdx.json", "two") {
		t.Error("the same programs give other lists, or other programs the same one")
	}
	if plugin := read(Plugin, "kubectl-tenon-linux-amd64.spdx.json", "one"); strings.Contains(plugin, "GPL") {
		t.Errorf("the plugin has BPF programs:\n%s", plugin)
	}
}
