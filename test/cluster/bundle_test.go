package cluster

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// TestABundleIsInstalled installs a release from its bundle alone. The chart names the
// images by their digests, the nodes get them from the bundle, and nothing on the way
// there may give an image another digest. The network of the cluster leads nowhere else.
func TestABundleIsInstalled(t *testing.T) {
	needsCluster(t)
	if !pickLength(false, true) {
		t.Skip("make soak runs it: it builds a release")
	}
	c, n := startCluster(t, "bundle")
	h := newChart(t, c, n)
	const version, file = "v0.0.1", "tenon-v0.0.1"
	dir := t.TempDir()
	out := filepath.Join(dir, "release")
	h.build("../..", "go", "run", "./deploy/release", "-version", version, "-images", "tenond,tenon-manager", "-arch", runtime.GOARCH,
		"-machine", "", "-plugin", "", "-out", out, "-work", filepath.Join(dir, "programs"))
	h.build(dir, "tar", "-xf", filepath.Join(out, file+"-bundle.tar"))
	unpacked := filepath.Join(dir, file)
	h.build(unpacked, "sha256sum", "--quiet", "-c", "SHA256SUMS")
	if err := c.addRelease(Release{Images: filepath.Join(unpacked, "images"), Version: version}); err != nil {
		t.Fatal(err)
	}
	steps, err := os.ReadFile(filepath.Join(unpacked, "INSTALL.md"))
	if err != nil {
		t.Fatal(err)
	}
	h.from = filepath.Join(unpacked, "tenon-0.0.1.tgz")
	h.kubectl("create", "namespace", home)
	h.install()
	t.Logf("helm test:\n%s", h.run("test", release, "--namespace", home, "--logs"))
	for _, name := range []string{"tenond", "tenon-manager"} {
		image := h.kubectl("get", "pods", "-n", home, "-l", "app.kubernetes.io/name="+name, "-o", "jsonpath={.items[0].spec.containers[0].image}")
		repository, digest, _ := strings.Cut(image, "@")
		if repository != imageRegistry+"/"+name || !strings.HasPrefix(digest, "sha256:") || !strings.Contains(string(steps), "/"+name+"@"+digest) {
			t.Errorf("the image of %s is %s", name, image)
		}
	}
	h.run("uninstall", release, "--namespace", home)
}
