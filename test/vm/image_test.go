package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestArchiveIsReadBackByCpio(t *testing.T) {
	for _, tool := range []string{"cpio", "busybox"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(t, "needs %s", tool)
		}
	}
	var image Image
	image.Text("/etc/odd", "five\n")
	image.Dir("/empty/deep")
	if err := image.File("/bin/copy", "image_test.go"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	archive := filepath.Join(dir, "initrd.cpio")
	if err := image.write(archive, nil); err != nil {
		t.Fatal(err)
	}
	unpack := exec.Command("cpio", "-i", "--quiet", "-I", archive)
	unpack.Dir = dir
	if output, err := unpack.CombinedOutput(); err != nil {
		t.Fatalf("cpio: %v: %s", err, output)
	}
	original, err := os.ReadFile("image_test.go")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"etc/odd": "five\n", "bin/copy": string(original), "init": string(initScript)} {
		got, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(want, string(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	for _, name := range []string{"empty/deep", "etc"} {
		if !isDir(filepath.Join(dir, name)) {
			t.Errorf("%s is not a directory", name)
		}
	}
}

func TestScriptSurvivesTheShell(t *testing.T) {
	if _, err := exec.LookPath("busybox"); err != nil {
		missing(t, "needs busybox")
	}
	commands := []Command{
		{Name: "quotes", Args: []string{"printf", "%s|", "a b", "it's", `$HOME "x"`, ""}},
		{Name: "settings", Args: []string{"sh", "-c", "echo $WORDS; pwd"}, Env: []string{"WORDS=two words"}, Dir: "/usr"},
		{Name: "no-folder", Args: []string{"echo", "not reached"}, Dir: "/nowhere"},
		{Name: "no-program", Args: []string{"/nowhere"}},
		{Name: "status", Args: []string{"sh", "-c", "echo open line; printf last; exit 3"}},
	}
	output, err := exec.Command("busybox", "sh", "-c", script(commands)).Output()
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]Outcome)
	for _, o := range read(string(output)).outcomes {
		got[o.Name] = Outcome{Exit: o.Exit, Output: o.Output}
	}
	if got["no-folder"].Exit == 0 {
		t.Error("a missing folder went unnoticed")
	}
	delete(got, "no-folder")
	if got["no-program"].Exit != 127 {
		t.Errorf("a missing program: exit %d, want 127", got["no-program"].Exit)
	}
	delete(got, "no-program")
	want := map[string]Outcome{
		"quotes":   {Output: `a b|it's|$HOME "x"||`},
		"settings": {Output: "two words\n/usr\n"},
		"status":   {Exit: 3, Output: "open line\nlast"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

func TestSharedLibrariesAreListed(t *testing.T) {
	got, err := parseLDD("\tlinux-vdso.so.1 (0x00007f02492c0000)\n" +
		"\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f024881e000)\n" +
		"\t/lib64/ld-linux-x86-64.so.2 (0x00007f02492c2000)\n")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("libraries (-want +got):\n%s", diff)
	}
	if _, err := parseLDD("\tlibx264.so.164 => not found\n"); err == nil {
		t.Error("a missing library went unnoticed")
	}
}
