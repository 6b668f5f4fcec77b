package vm

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// stdout runs a script with extra environment variables. It returns the output,
// and whether the script succeeded.
func stdout(env []string, script ...string) (string, bool) {
	command := exec.Command(script[0], script[1:]...)
	command.Env = append(os.Environ(), env...)
	output, err := command.Output()
	return strings.TrimSpace(string(output)), err == nil
}

func TestArchiveIsThatOfTheMachinesApt(t *testing.T) {
	for name, c := range map[string]struct{ uris, want string }{
		"debian": {
			"'https://m.example/debian-security/dists/bookworm-security/InRelease' a 0\n" +
				"'https://m.example/debian/dists/bookworm/InRelease' b 0\n" +
				"'https://m.example/debian/dists/bookworm/main/binary-amd64/Packages.xz' c 0", "https://m.example/debian"},
		"third party first": {
			"'https://p.example/apt/dists/nodistro/InRelease' a 0\n'http://m.example/deb/dists/trixie-updates/InRelease' b 0", "http://m.example/deb"},
		"mirror list": {"'mirror+file:/etc/apt/mirrors/debian.list/dists/trixie/InRelease' a 0", "mirror+file:/etc/apt/mirrors/debian.list"},
		"ubuntu":      {"'http://m.example/ubuntu/dists/noble/InRelease' a 0", ""},
		"nothing":     {"", ""},
	} {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			fake := "#!/bin/sh\n[ \"$*\" = 'update --print-uris' ] && cat <<'URIS'\n" + c.uris + "\nURIS\n"
			if err := os.WriteFile(filepath.Join(bin, "apt-get"), []byte(fake), 0o755); err != nil {
				t.Fatal(err)
			}
			got, ok := stdout([]string{"PATH=" + bin + ":" + os.Getenv("PATH")}, "../../scripts/debian-archive.sh")
			if got != c.want || ok != (c.want != "") {
				t.Errorf("archive %q, success %v; want %q", got, ok, c.want)
			}
		})
	}
}

func TestOnlyASoundCachedKernelIsUsed(t *testing.T) {
	cache := t.TempDir()
	dir := filepath.Join(cache, "kernel")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	write := func(release, content, checksumOf string) {
		image := filepath.Join(dir, "vmlinuz-"+release)
		sum := fmt.Sprintf("%x  vmlinuz-%s\n", sha256.Sum256([]byte(checksumOf)), release)
		if err := os.WriteFile(image, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(image+".sha256", []byte(sum), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect := func(why, release string, series ...string) {
		t.Helper()
		want := ""
		if release != "" {
			want = filepath.Join(dir, "vmlinuz-"+release)
		}
		if got, ok := stdout([]string{"TENON_CACHE=" + cache, "TENON_VM_KERNEL="}, append([]string{"./kernel.sh", "--cached"}, series...)...); got != want || ok != (want != "") {
			t.Errorf("%s: kernel.sh --cached prints %q, success %v; want %q", why, got, ok, want)
		}
	}
	sound := strings.Repeat("\x00", 514) + "HdrS" + "and the rest"

	expect("empty cache", "")
	write("6.17.1+deb13-cloud-amd64", sound, sound)
	expect("another series", "")
	write("6.18.9+deb13-cloud-amd64", sound[:520], sound)
	expect("a file cut short", "")
	write("6.18.9+deb13-cloud-amd64", "not a kernel", "not a kernel")
	expect("no kernel at all", "")
	write("6.18.9+deb13-cloud-amd64", sound, sound)
	expect("an older one of the series", "6.18.9+deb13-cloud-amd64")
	write("6.18.12+deb13-cloud-amd64", sound, sound)
	expect("the newest of the series", "6.18.12+deb13-cloud-amd64")
	write("6.18.15+deb13-cloud-amd64", sound, sound)
	write("6.18.20+deb13-cloud-amd64", sound, sound)
	expect("the pinned one", "6.18.15+deb13-cloud-amd64")

	expect("none of the series asked for", "", "7.3")
	write("7.3.9+deb13-cloud-amd64", sound, sound)
	expect("one of the series asked for", "7.3.9+deb13-cloud-amd64", "7.3")
	expect("6.1 is not 6.18", "", "6.1")
	write("6.12.107-tenon-000000000000", sound, sound)
	expect("built with another configuration", "", "6.12")
	write("6.12.1-tenon-"+recipe(t), sound, sound)
	expect("built with this configuration from older sources", "6.12.1-tenon-"+recipe(t), "6.12")
	expect("no such series", "", "5.15")
}

// recipe returns a hash of the configuration and the patch. The name of a built
// kernel contains this hash.
func recipe(t *testing.T) string {
	t.Helper()
	hash := sha256.New()
	for _, name := range []string{"kernel/config", "kernel/setcpuid.patch"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		hash.Write(content)
	}
	return fmt.Sprintf("%x", hash.Sum(nil))[:12]
}

func TestKernelsAreDistinguished(t *testing.T) {
	for image, want := range map[string]string{
		"/c/vmlinuz-6.1.0-50-cloud-amd64": "6.1", "/c/vmlinuz-6.12.107-tenon-0a": "6.12",
		"/c/vmlinuz-6.18.15+deb13-cloud-amd64": "6.18", "/c/vmlinuz-7.3.4+deb13-cloud-amd64": "7.3",
		"/boot/vmlinuz-5.10": "", "/x/bzImage": "",
	} {
		if got := seriesOf(image); got != want {
			t.Errorf("%s is of the series %q, want %q", image, got, want)
		}
	}
}
