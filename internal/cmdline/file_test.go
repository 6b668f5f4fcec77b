package cmdline

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestAFileThatCannotBeWrittenIsSaidBeforeTheWork also has a second name of an input.
func TestAFileThatCannotBeWrittenIsSaidBeforeTheWork(t *testing.T) {
	dir := t.TempDir()
	in, link := filepath.Join(dir, "in.csv"), filepath.Join(dir, "link.csv")
	if err := os.WriteFile(in, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(in, link); err != nil {
		t.Fatal(err)
	}
	inputs := map[string]string{"csv": in, "config": filepath.Join(dir, "none"), "token": ""}
	for name, want := range map[string]string{
		Stdout: "", filepath.Join(dir, "new.html"): "", "/dev/null": "",
		"": "want a file", dir: "it is a directory", in: "the file of --csv", link: "the file of --csv",
		filepath.Join(dir, "none", "x.html"): "no such file", filepath.Join(in, "x.html"): "not a directory",
	} {
		err := CheckFile("html", name, inputs)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "--html")) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 2 {
		t.Errorf("the check leaves files: %v, %v", entries, err)
	}
	if text, err := os.ReadFile(in); err != nil || string(text) != "x" {
		t.Errorf("the check changes a file: %q, %v", text, err)
	}
}

// TestAPageGoesToAFileOrOut writes the same page twice.
func TestAPageGoesToAFileOrOut(t *testing.T) {
	var cmd cobra.Command
	var out bytes.Buffer
	cmd.SetOut(&out)
	file := filepath.Join(t.TempDir(), "page.html")
	for _, name := range []string{Stdout, file} {
		if err := WriteFile(&cmd, name, []byte("page")); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(file); err != nil || string(text) != "page" || out.String() != "page" {
		t.Errorf("%q, %q, %v", text, out.String(), err)
	}
}
