package pack

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

func example(t *testing.T, version string) map[string][]byte {
	t.Helper()
	build := func(arch string, programs ...File) Build {
		return Build{Product: Images[0], Platform: Platform{"linux", arch}, Programs: programs, Texts: []File{{"licenses/LICENSE", []byte("text"), 0o644}}}
	}
	builds := []Build{
		build("amd64", File{"tenond", []byte("one"), 0o755}, File{"tenon", []byte("two"), 0o755}),
		build("arm64", File{"tenon", []byte("four"), 0o755}, File{"tenond", []byte("three"), 0o755}),
	}
	a, err := newArchive("registry.example/tenon/tenond:"+Tag(version), imageOf(Images[0], version, time.Unix(1_700_000_000, 0).UTC()), builds)
	if err != nil {
		t.Fatal(err)
	}
	var data bytes.Buffer
	if err := a.write(&data); err != nil {
		t.Fatal(err)
	}
	return untar(t, data.Bytes())
}

func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
	}
}

func TestTheSameProgramsGiveTheSameDigest(t *testing.T) {
	a, b, other := example(t, "v1.0.0+dirty"), example(t, "v1.0.0+dirty"), example(t, "v2")
	if string(a["index.json"]) != string(b["index.json"]) {
		t.Errorf("two builds differ:\n%s\n%s", a["index.json"], b["index.json"])
	}
	if string(a["index.json"]) == string(other["index.json"]) {
		t.Error("two versions have one digest")
	}
}

// TestAnImageHoldsItsProgramsForEachMachine follows and checks the digests,
// like a runtime that pulls the image.
func TestAnImageHoldsItsProgramsForEachMachine(t *testing.T) {
	files := example(t, "v1.0.0+dirty")
	blob := func(d v1.Descriptor, v any) []byte {
		t.Helper()
		data := files["blobs/sha256/"+d.Digest.Encoded()]
		if int64(len(data)) != d.Size || digest.FromBytes(data) != d.Digest {
			t.Fatalf("blob %s: %d bytes of digest %s, want %d", d.Digest, len(data), digest.FromBytes(data), d.Size)
		}
		if v != nil {
			if err := json.Unmarshal(data, v); err != nil {
				t.Fatal(err)
			}
		}
		return data
	}
	var top, image v1.Index
	if err := json.Unmarshal(files["index.json"], &top); err != nil {
		t.Fatal(err)
	}
	if got, want := top.Manifests[0].Annotations[nameKey], "registry.example/tenon/tenond:v1.0.0_dirty"; got != want {
		t.Errorf("the image is called %s, want %s", got, want)
	}
	blob(top.Manifests[0], &image)
	want := map[string]string{"amd64": "tenon=two tenond=one", "arm64": "tenon=four tenond=three"}
	for _, d := range image.Manifests {
		var m v1.Manifest
		var c v1.Image
		blob(d, &m)
		blob(m.Config, &c)
		if c.Architecture != d.Platform.Architecture || c.Config.User != "0:0" || c.Config.Entrypoint[0] != "/tenond" || c.Config.Labels[v1.AnnotationVersion] != "v1.0.0+dirty" {
			t.Errorf("%s: %+v", d.Platform.Architecture, c)
		}
		z, err := gzip.NewReader(bytes.NewReader(blob(m.Layers[0], nil)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if digest.FromBytes(plain) != c.RootFS.DiffIDs[0] {
			t.Errorf("%s: the layer has not the digest in the configuration", c.Architecture)
		}
		root := untar(t, plain)
		if got := fmt.Sprintf("tenon=%s tenond=%s", root["tenon"], root["tenond"]); got != want[c.Architecture] || len(root) != 3 || string(root["licenses/LICENSE"]) != "text" {
			t.Errorf("%s holds %s, want %s", c.Architecture, got, want[c.Architecture])
		}
		delete(want, c.Architecture)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
}

// TestTheDockerfileMakesTheSameImages checks that the Dockerfile and this
// command make the same images.
func TestTheDockerfileMakesTheSameImages(t *testing.T) {
	text, err := os.ReadFile("../image/Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range Images {
		_, rest, found := strings.Cut(string(text), "\nFROM scratch AS "+p.Name+"\n")
		if !found {
			t.Errorf("no target %s", p.Name)
			continue
		}
		target, _, _ := strings.Cut(rest, "\nFROM ")
		var programs string
		for _, name := range p.Programs {
			programs += "/out/" + name + " "
		}
		stage := "build"
		if p.Module != "" {
			stage += "-" + p.Module
		}
		about := imageOf(p, "$VERSION", time.Now())
		texts := "COPY LICENSE "
		if p.bpf {
			texts += "bpf/COPYING "
		}
		lines := []string{texts + "/licenses/", "USER " + p.User, "COPY --from=" + stage + " " + programs + "/", `ENTRYPOINT ["` + about.Config.Entrypoint[0] + `"]`, "ENV " + about.Config.Env[0], "STOPSIGNAL " + about.Config.StopSignal}
		for key, value := range about.Config.Labels {
			lines = append(lines, key+`="`+value+`"`)
		}
		for _, want := range lines {
			if !strings.Contains(target, want) {
				t.Errorf("target %s has no %s", p.Name, want)
			}
		}
	}
	if !strings.Contains(string(text), "-trimpath -buildvcs=false -ldflags \"-s -w -X main.version=$VERSION\"") {
		t.Error("the Dockerfile builds the programs with other flags")
	}
}

func TestOnlyTheManagerIsNotRoot(t *testing.T) {
	for _, p := range Images {
		if root := strings.HasPrefix(p.User, "0:"); root != (p.Name == "tenond") {
			t.Errorf("%s runs as %s", p.Name, p.User)
		}
	}
}

func TestTheSchedulerReportsTheReleaseOfItsModule(t *testing.T) {
	release, err := kubernetes("../../scheduler/go.mod")
	if err != nil || !strings.HasPrefix(release, "v1.") {
		t.Errorf("%q, %v", release, err)
	}
	if _, err := kubernetes("../../go.mod"); err == nil {
		t.Error("the root module names a release of k8s.io/kubernetes")
	}
}
