package chart

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	memory "github.com/google/go-containerregistry/pkg/registry"
	"go.yaml.in/yaml/v3"
	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	helm "helm.sh/helm/v4/pkg/registry"
)

const (
	root    = "../.."
	version = "v1.2.3"
	// small is the part of a release that the tests build: make release builds all of
	// it, and make soak starts what can be started.
	small = "-images=tenon-manager -arch=amd64 -machine= -plugin=linux/amd64"
)

// compiled builds a program of deploy. The cache of the tests must know its sources, of
// which it sees only those that this process opens.
func compiled(t *testing.T, name string) string {
	t.Helper()
	for _, dir := range []string{"deploy", "cmd/tenon-manager", "cmd/kubectl-tenon", "internal", "api"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() {
				_, err = os.ReadFile(path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-o", path, "./deploy/"+name)
	cmd.Dir = root
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, said)
	}
	return path
}

// build builds a small release from the sources in a folder, and returns its files by
// their names.
func build(t *testing.T, release, sources string, args ...string) (out string, files map[string][]byte) {
	t.Helper()
	dir := t.TempDir()
	out = filepath.Join(dir, "release")
	cmd := exec.Command(release, slices.Concat([]string{"-version", version, "-root", sources, "-out", out, "-work", filepath.Join(dir, "programs")}, strings.Fields(small), args)...)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, said)
	}
	files = map[string][]byte{}
	err := fs.WalkDir(os.DirFS(out), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files[name], err = os.ReadFile(filepath.Join(out, name))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out, files
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// TestARelease builds a small release twice, from two folders, and reads it as its
// users do: by its checksums, by Helm, by Krew's fields, and from a registry.
func TestARelease(t *testing.T) {
	if testing.Short() {
		t.Skip("links programs for half a minute")
	}
	release := compiled(t, "release")
	out, files := build(t, release, root)
	other := t.TempDir()
	for _, name := range []string{"api", "bpf", "cmd", "deploy", "examples", "internal", "go.mod", "go.sum", "LICENSE"} {
		if said, err := exec.Command("cp", "-r", filepath.Join(root, name), other).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
	}
	_, again := build(t, release, other)
	if len(files) != len(again) || len(files) < 10 {
		t.Errorf("%d files, and the second time %d", len(files), len(again))
	}
	for name := range files {
		if !bytes.Equal(files[name], again[name]) {
			t.Errorf("%s has other bytes the second time: %s, %s", name, sumOf(files[name]), sumOf(again[name]))
		}
	}
	checksums(t, files)
	bundle(t, files)
	krew(t, files)
	digest := released(t, files)
	pushed(t, out, digest)
}

// checksums checks that each file but the list itself and the bundle is in the list.
func checksums(t *testing.T, files map[string][]byte) {
	t.Helper()
	listed := map[string]string{}
	for line := range strings.Lines(string(files["SHA256SUMS"])) {
		sum, name, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "  ")
		listed[name] = sum
	}
	for name, data := range files {
		if own := name == "SHA256SUMS" || strings.HasSuffix(name, "-bundle.tar"); !own && listed[name] != sumOf(data) {
			t.Errorf("%s has the checksum %q, want %s", name, listed[name], sumOf(data))
		}
	}
	if len(listed) != len(files)-2 {
		t.Errorf("%d checksums of %d files", len(listed), len(files))
	}
}

// bundle checks that the bundle has every file.
func bundle(t *testing.T, files map[string][]byte) {
	t.Helper()
	const folder = "tenon-" + version
	seen := 0
	for r := tar.NewReader(bytes.NewReader(files[folder+"-bundle.tar"])); ; seen++ {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		name, is := strings.CutPrefix(h.Name, folder+"/")
		if data, err := io.ReadAll(r); err != nil || !is || !bytes.Equal(data, files[name]) {
			t.Errorf("the bundle has another %s: %v", h.Name, err)
		}
	}
	if seen != len(files)-1 {
		t.Errorf("the bundle has %d files of %d", seen, len(files))
	}
}

// krew checks the manifest of the plugin: a checksum of another archive would stop
// each installation.
func krew(t *testing.T, files map[string][]byte) {
	t.Helper()
	var manifest struct {
		Kind string
		Spec struct {
			Version   string
			Platforms []struct {
				Selector struct {
					MatchLabels map[string]string `yaml:"matchLabels"`
				}
				URI, SHA256, Bin string
			}
		}
	}
	if err := yaml.Unmarshal(files["krew/tenon.yaml"], &manifest); err != nil {
		t.Fatal(err)
	}
	if manifest.Kind != "Plugin" || manifest.Spec.Version != version || len(manifest.Spec.Platforms) != 1 {
		t.Errorf("%+v", manifest)
	}
	for _, p := range manifest.Spec.Platforms {
		data := files[p.URI]
		if data == nil || p.SHA256 != sumOf(data) || p.Bin != "kubectl-tenon" || p.Selector.MatchLabels["arch"] != "amd64" {
			t.Errorf("%+v: %d bytes with the checksum %s", p, len(data), sumOf(data))
		}
	}
}

// released reads the packed chart by Helm. It must be the chart of the sources, with
// the release's version and the digest of the image, which it returns.
func released(t *testing.T, files map[string][]byte) string {
	t.Helper()
	var top struct{ Manifests []struct{ Digest string } }
	for r := tar.NewReader(bytes.NewReader(files["images/tenon-manager.tar"])); ; {
		h, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if h.Name == "index.json" {
			if err := json.NewDecoder(r).Decode(&top); err != nil {
				t.Fatal(err)
			}
			break
		}
	}
	digest, path := top.Manifests[0].Digest, filepath.Join(t.TempDir(), "tenon.tgz")
	if err := os.WriteFile(path, files["tenon-1.2.3.tgz"], 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := loader.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Version != "1.2.3" || c.Metadata.AppVersion != version {
		t.Errorf("version %s of %s", c.Metadata.Version, c.Metadata.AppVersion)
	}
	all, err := util.ToRenderValues(c, set(registry, "image", "registry"), common.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, capabilities("v1.37.0"))
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := engine.Render(c, all)
	if err != nil {
		t.Fatal(err)
	}
	sources, err := renderFiles(t, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.NewReplacer("tenon-1.2.3", "tenon-0.1.0", registry+"/tenon-manager@"+digest, registry+"/tenon-manager:latest", version, "latest").Replace(text(documentsOf(t, rendered)))
	if want := text(documentsOf(t, sources)); got != want {
		t.Error("the released chart renders other objects than the sources")
	}
	if manager := rendered["tenon/templates/manager.yaml"]; !strings.Contains(manager, "image: "+registry+"/tenon-manager@"+digest) {
		t.Errorf("the manager has not the image %s:\n%s", digest, manager)
	}
	return digest
}

// pushed pushes the release to a registry on loopback, and asks for the image by its
// tag and for the chart by Helm.
func pushed(t *testing.T, out, digest string) {
	t.Helper()
	server := httptest.NewServer(memory.New(memory.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	cmd := exec.Command(compiled(t, "push"), "-release", out, "-registry", host+"/some/path")
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+t.TempDir())
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("push: %v\n%s", err, said)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodHead, server.URL+"/v2/some/path/tenon-manager/manifests/"+version, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if got := answer.Header.Get("Docker-Content-Digest"); answer.StatusCode != http.StatusOK || got != digest {
		t.Errorf("%s: the image has the digest %s, want %s", answer.Status, got, digest)
	}
	client, err := helm.NewClient(helm.ClientOptPlainHTTP())
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := client.Pull(host + "/some/path/charts/tenon:1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(filepath.Join(out, "tenon-1.2.3.tgz"))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(pulled.Chart.Data, want) || pulled.Chart.Meta.Version != "1.2.3" {
		t.Errorf("Helm pulls %d bytes of version %s, want %d", len(pulled.Chart.Data), pulled.Chart.Meta.Version, len(want))
	}
}
