package vm

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func TestKernelsOfDebianNeedNoBzImage(t *testing.T) {
	needMachines(t)
	for _, series := range []string{"6.1", "6.18", "7.3"} {
		to := filepath.Join(t.TempDir(), "vmlinux")
		if ok, err := decompress(kernel(t, series), to); !ok || err != nil {
			t.Errorf("the kernel %s cannot be started without its bzImage: %v", series, err)
		}
	}
}

// A machine that has compiled no kernel has these programs only if the tests ask
// for them.
func TestTheToolsOfKernelsAreInstalledForTheTests(t *testing.T) {
	text, err := os.ReadFile("../../scripts/install-deps.sh")
	if err != nil {
		t.Fatal(err)
	}
	_, tests, _ := strings.Cut(string(text), "\ntests() {\n")
	tests, _, _ = strings.Cut(tests, "\n}")
	programs := []string{"cpio"}
	for _, c := range compressions {
		if c.program != "gzip" { // each Debian has it
			programs = append(programs, c.program)
		}
	}
	for _, p := range programs {
		if !regexp.MustCompile(`(?m)^\tneed \S+ ` + p + `\b`).MatchString(tests) {
			t.Errorf("install-deps.sh test does not install %s", p)
		}
	}
}

func TestOtherFilesAreStartedAsTheyAre(t *testing.T) {
	setup := make([]byte, 1024)
	copy(setup[0x202:], "HdrS")
	setup[0x1f1] = 1 // two sectors: the kernel begins at 1024
	setup[0x24c] = 6 // bytes
	for name, content := range map[string][]byte{
		"empty":                   {},
		"no bzImage":              bytes.Repeat([]byte("x"), 4096),
		"cut short":               setup,
		"unknown compression":     append(bytes.Clone(setup), "abcdef"...),
		"no kernel in the stream": append(bytes.Clone(setup), "\x02\x21\x4c\x18\x00\x00"...),
	} {
		dir := t.TempDir()
		from, to := filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "vmlinux")
		if err := os.WriteFile(from, content, 0o600); err != nil {
			t.Fatal(err)
		}
		ok, err := decompress(from, to)
		if _, exists := os.Stat(to); ok || err != nil || exists == nil {
			t.Errorf("%s: decompressed %v, %v, the file exists %v", name, ok, err, exists == nil)
		}
	}
	if _, err := decompress(filepath.Join(t.TempDir(), "none"), ""); err == nil {
		t.Error("a kernel that does not exist was decompressed")
	}
}
