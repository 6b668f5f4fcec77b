package image

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const name = "docker.io/library/hello:1"

func hello(t *testing.T, text string) Layout {
	t.Helper()
	l := Layout{Dir: t.TempDir()}
	var r Root
	r.Text("/etc/hello", 0o644, text)
	r.Link("/bin/sh", "busybox")
	r.Dir("/tmp", 0o1777)
	if err := l.Add(name, &r, "/bin/sh", "-c", "true"); err != nil {
		t.Fatal(err)
	}
	return l
}

// fetch requests a path. It compares the content with the digest that the
// registry returns.
func fetch(t *testing.T, server *httptest.Server, path string) (body []byte, kind string) {
	t.Helper()
	answer, err := http.Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err = io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %v: %s", path, answer.Status, err, body)
	}
	sum := sha256.Sum256(body)
	if want := answer.Header.Get("Docker-Content-Digest"); want != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("%s: said to be %s", path, want)
	}
	return body, answer.Header.Get("Content-Type")
}

// TestRegistryServesAnImage pulls an image as a client does, from its name to
// the last file.
func TestRegistryServesAnImage(t *testing.T) {
	server := httptest.NewServer(Registry{{Dir: t.TempDir()}, hello(t, "good morning")}.Handler())
	defer server.Close()

	text, kind := fetch(t, server, "/v2/library/hello/manifests/1?ns=docker.io")
	var manifest struct {
		MediaType string
		Config    Descriptor
		Layers    []Descriptor
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	if kind != typeManifest || manifest.MediaType != typeManifest || len(manifest.Layers) != 1 {
		t.Fatalf("as %s: %s", kind, text)
	}
	sum := sha256.Sum256(text)
	if again, _ := fetch(t, server, "/v2/library/hello/manifests/sha256:"+hex.EncodeToString(sum[:])+"?ns=docker.io"); !bytes.Equal(again, text) {
		t.Errorf("by digest it is another manifest: %s", again)
	}
	config, _ := fetch(t, server, "/v2/library/hello/blobs/"+manifest.Config.Digest)
	if !strings.Contains(string(config), manifest.Layers[0].Digest) {
		t.Errorf("the configuration does not name the layer: %s", config)
	}
	layer, _ := fetch(t, server, "/v2/library/hello/blobs/"+manifest.Layers[0].Digest)
	if int64(len(layer)) != manifest.Layers[0].Size {
		t.Errorf("the layer has %d bytes, %d were said", len(layer), manifest.Layers[0].Size)
	}
	var seen []string
	for r := tar.NewReader(bytes.NewReader(layer)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seen = append(seen, h.Name)
		if h.Name == "etc/hello" {
			if content, _ := io.ReadAll(r); string(content) != "good morning" {
				t.Errorf("content %q", content)
			}
		}
	}
	if got := strings.Join(seen, " "); got != "bin/ bin/sh etc/ etc/hello tmp/" {
		t.Errorf("files: %s", got)
	}
}

// TestRegistryHasOnlyWhatItWasGiven checks that the registry serves no other file
// of its machine, and that clients cannot write to it.
func TestRegistryHasOnlyWhatItWasGiven(t *testing.T) {
	l := hello(t, "")
	secret := filepath.Join(filepath.Dir(l.Dir), "secret")
	if err := os.WriteFile(secret, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	handler := Registry{l}.Handler()
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/v2/", 200},
		{"HEAD", "/v2/library/hello/manifests/1?ns=docker.io", 200},
		{"GET", "/v2/library/hello/manifests/2?ns=docker.io", 404},
		{"GET", "/v2/library/hello/manifests/1?ns=quay.io", 404},
		{"GET", "/v2/library/hello/manifests/1", 404},
		{"GET", "/v2/library/hello/blobs/sha256:" + strings.Repeat("0", 64), 404},
		{"GET", "/v2/library/hello/blobs/sha256:..%2f..%2findex.json", 404},
		{"GET", "/v2/library/hello/blobs/..%2findex.json", 404},
		{"GET", "/v2/library/hello/tags/list", 404},
		{"PUT", "/v2/library/hello/manifests/1", 405},
		{"DELETE", "/v2/library/hello/manifests/1?ns=docker.io", 405},
	} {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.want {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, w.Code, c.want)
		}
	}
}

// TestImportedImageIsServedUnderItsNewName imports an archive of another tool.
// In the archive, the image has another name or none.
func TestImportedImageIsServedUnderItsNewName(t *testing.T) {
	from := hello(t, "from an archive")
	archive := filepath.Join(t.TempDir(), "image.tar")
	f, err := os.Create(archive)
	if err != nil {
		t.Fatal(err)
	}
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(from.Dir)); err != nil {
		t.Fatal(err)
	}
	w.Close()
	f.Close()
	to := Layout{Dir: t.TempDir()}
	if err := to.Import(archive, "registry.example/a/b:2"); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(Registry{to}.Handler())
	defer server.Close()
	old, err := from.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	text, _ := fetch(t, server, "/v2/a/b/manifests/2?ns=registry.example")
	if sum := sha256.Sum256(text); old.Digest != "sha256:"+hex.EncodeToString(sum[:]) {
		t.Errorf("it is another image: %s", text)
	}
	if _, err := to.Find(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old name: %v", err)
	}
	if err := to.Import(filepath.Join(from.Dir, "index.json"), "x/y:1"); err == nil {
		t.Error("a file that is no archive was imported")
	}
}

// TestNewImageReplacesTheOldOfItsName imports two images under the same name.
func TestNewImageReplacesTheOldOfItsName(t *testing.T) {
	l := hello(t, "old")
	before, _ := l.Find(name)
	var r Root
	r.Text("/etc/hello", 0o644, "new")
	if err := l.Add(name, &r); err != nil {
		t.Fatal(err)
	}
	after, err := l.Find(name)
	if err != nil || after.Digest == before.Digest {
		t.Errorf("%v, %v: want another than %v", after, err, before)
	}
	if names, err := l.Names(); err != nil || len(names) != 1 {
		t.Errorf("names %v, %v: want one", names, err)
	}
	if err := l.prune(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(l.path(before.Digest)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old image's manifest is kept: %v", err)
	}
	blobs, _ := filepath.Glob(l.path("*"))
	if _, err := os.Stat(l.path(after.Digest)); err != nil || len(blobs) != 3 {
		t.Errorf("kept are %v, %v: want manifest, configuration and layer", blobs, err)
	}
}
