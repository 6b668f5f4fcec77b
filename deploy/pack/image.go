package pack

import (
	"archive/tar"
	"bytes"
	"context"
	_ "crypto/sha256" // digests need it
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// nameKey is the annotation from which containerd takes the name of an imported
// image.
const nameKey = "io.containerd.image.name"

// An Image is an image that was built, in an archive.
type Image struct {
	Name   string // with the registry and the tag
	Path   string // of the archive
	Digest digest.Digest
	Builds []Build
}

// An archive is an OCI image layout as a tar file. Its index has one entry,
// which is an index of images for several platforms.
type archive struct {
	digest digest.Digest
	files  map[string][]byte
}

// imageOf returns the configuration of an image for any platform.
func imageOf(p Product, version string, created time.Time) v1.Image {
	labels := map[string]string{
		v1.AnnotationTitle: p.Name, v1.AnnotationDescription: p.About, v1.AnnotationVersion: version,
		v1.AnnotationLicenses: p.licence(), v1.AnnotationSource: Source,
	}
	return v1.Image{
		Created:  &created,
		Platform: v1.Platform{OS: "linux"},
		Config:   v1.ImageConfig{User: p.User, Entrypoint: []string{"/" + p.Programs[0]}, Env: []string{"PATH=/"}, Labels: labels, StopSignal: "SIGTERM"},
	}
}

// Image builds an image for some processors and writes its archive into the folder
// out. registry stands before the name of the image; it may be empty.
func (o Order) Image(ctx context.Context, p Product, registry string, arches []string, out string) (Image, error) {
	i := Image{Name: path.Join(registry, p.Name) + ":" + Tag(o.Version), Path: filepath.Join(out, p.Name+".tar")}
	for _, arch := range arches {
		b, err := o.Build(ctx, p, Platform{"linux", arch})
		if err != nil {
			return i, err
		}
		i.Builds = append(i.Builds, b)
	}
	a, err := newArchive(i.Name, imageOf(p, o.Version, o.Created), i.Builds)
	if err != nil {
		return i, err
	}
	i.Digest = a.digest
	return i, WriteFile(i.Path, a.write)
}

// WriteFile makes a file and the folders above it, and lets write fill it.
func WriteFile(name string, write func(io.Writer) error) error {
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := write(f); err != nil {
		_ = f.Close()
		return fmt.Errorf("write %s: %w", name, err)
	}
	return f.Close()
}

func newArchive(name string, about v1.Image, builds []Build) (*archive, error) {
	a := &archive{files: map[string][]byte{}}
	all := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Annotations: about.Config.Labels}
	for _, b := range builds {
		d, err := a.addImage(about, b)
		if err != nil {
			return nil, err
		}
		all.Manifests = append(all.Manifests, d)
	}
	image, err := a.addDocument(v1.MediaTypeImageIndex, all)
	if err != nil {
		return nil, err
	}
	a.digest = image.Digest
	image.Annotations = map[string]string{nameKey: name, v1.AnnotationRefName: name[strings.LastIndexByte(name, ':')+1:]}
	top, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: []v1.Descriptor{image}})
	if err != nil {
		return nil, err
	}
	layout, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return nil, err
	}
	a.files[v1.ImageIndexFile], a.files[v1.ImageLayoutFile] = top, layout
	return a, nil
}

// addImage adds the image for one platform.
func (a *archive) addImage(about v1.Image, b Build) (v1.Descriptor, error) {
	var plain, packed bytes.Buffer
	err := compress(&packed, func(w io.Writer) error {
		return Tar(io.MultiWriter(w, &plain), slices.Concat(b.Programs, b.Texts), *about.Created)
	})
	if err != nil {
		return v1.Descriptor{}, err
	}
	about.Architecture = b.Platform.Arch
	about.RootFS = v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain.Bytes())}}
	about.History = []v1.History{{Created: about.Created, CreatedBy: "deploy/image"}}
	config, err := a.addDocument(v1.MediaTypeImageConfig, about)
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := a.addDocument(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: config, Layers: []v1.Descriptor{a.addBlob(v1.MediaTypeImageLayerGzip, packed.Bytes())},
	})
	manifest.Platform = &v1.Platform{OS: b.Platform.OS, Architecture: b.Platform.Arch}
	return manifest, err
}

func (a *archive) addDocument(mediaType string, v any) (v1.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return a.addBlob(mediaType, data), nil
}

func (a *archive) addBlob(mediaType string, data []byte) v1.Descriptor {
	d := digest.FromBytes(data)
	a.files["blobs/"+d.Algorithm().String()+"/"+d.Encoded()] = data
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

func (a *archive) write(w io.Writer) error {
	t := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(a.files)) {
		if err := put(t, name, 0o644, time.Unix(0, 0), a.files[name]); err != nil {
			return err
		}
	}
	return t.Close()
}
