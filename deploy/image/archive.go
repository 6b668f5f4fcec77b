package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	_ "crypto/sha256" // digests need it
	"encoding/json"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// nameKey is the annotation from which containerd takes the name of an imported
// image.
const nameKey = "io.containerd.image.name"

// A layer holds the files of an image for one architecture.
type layer struct {
	arch  string
	files []file
	texts []file // the licences, below /licenses
}

// A file is a program or a text, with its path from the root of an image.
type file struct {
	name string
	data []byte
}

// An archive is an OCI image layout as a tar file. Its index has one entry,
// which is an index of images for several platforms.
type archive struct {
	digest string
	files  map[string][]byte
}

// imageOf returns the configuration of an image for any platform.
func imageOf(p product, version string, created time.Time) v1.Image {
	labels := map[string]string{
		v1.AnnotationTitle: p.name, v1.AnnotationDescription: p.about, v1.AnnotationVersion: version,
		v1.AnnotationLicenses: p.licence(), v1.AnnotationSource: source,
	}
	return v1.Image{
		Created:  &created,
		Platform: v1.Platform{OS: "linux"},
		Config:   v1.ImageConfig{User: p.user, Entrypoint: []string{"/" + p.programs[0]}, Env: []string{"PATH=/"}, Labels: labels, StopSignal: "SIGTERM"},
	}
}

func newArchive(name string, about v1.Image, layers []layer) (*archive, error) {
	a := &archive{files: map[string][]byte{}}
	all := v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Annotations: about.Config.Labels}
	for _, l := range layers {
		d, err := a.addImage(about, l)
		if err != nil {
			return nil, err
		}
		all.Manifests = append(all.Manifests, d)
	}
	image, err := a.addDocument(v1.MediaTypeImageIndex, all)
	if err != nil {
		return nil, err
	}
	a.digest = image.Digest.String()
	image.Annotations = map[string]string{nameKey: name, v1.AnnotationRefName: name[lastColon(name)+1:]}
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

func lastColon(name string) int { return bytes.LastIndexByte([]byte(name), ':') }

// addImage adds the image for one platform.
func (a *archive) addImage(about v1.Image, l layer) (v1.Descriptor, error) {
	plain, packed, err := l.pack(*about.Created)
	if err != nil {
		return v1.Descriptor{}, err
	}
	about.Architecture = l.arch
	about.RootFS = v1.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain)}}
	about.History = []v1.History{{Created: about.Created, CreatedBy: "deploy/image"}}
	config, err := a.addDocument(v1.MediaTypeImageConfig, about)
	if err != nil {
		return v1.Descriptor{}, err
	}
	manifest, err := a.addDocument(v1.MediaTypeImageManifest, v1.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest,
		Config: config, Layers: []v1.Descriptor{a.addBlob(v1.MediaTypeImageLayerGzip, packed)},
	})
	manifest.Platform = &v1.Platform{OS: "linux", Architecture: l.arch}
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

// pack makes the layer, and always makes the same bytes from the same files.
func (l layer) pack(created time.Time) (plain, packed []byte, err error) {
	files := slices.SortedFunc(slices.Values(l.files), func(a, b file) int { return cmp.Compare(a.name, b.name) })
	var buf bytes.Buffer
	t := tar.NewWriter(&buf)
	for _, f := range files {
		if err := put(t, f.name, 0o755, created, f.data); err != nil {
			return nil, nil, err
		}
	}
	for _, f := range l.texts {
		if err := put(t, f.name, 0o644, created, f.data); err != nil {
			return nil, nil, err
		}
	}
	if err := t.Close(); err != nil {
		return nil, nil, err
	}
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, nil, err
	}
	if _, err := z.Write(buf.Bytes()); err != nil {
		return nil, nil, err
	}
	if err := z.Close(); err != nil {
		return nil, nil, err
	}
	return buf.Bytes(), out.Bytes(), nil
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

func put(t *tar.Writer, name string, mode int64, at time.Time, data []byte) error {
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: at, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}
