// Package image makes OCI images from programs of the machine, and serves them
// as a registry. The test cluster gets all its images from this registry.
package image

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Media types of the OCI image specification.
const (
	typeManifest = "application/vnd.oci.image.manifest.v1+json"
	typeConfig   = "application/vnd.oci.image.config.v1+json"
	typeLayer    = "application/vnd.oci.image.layer.v1.tar"
)

// nameKey is the annotation with the full name of an image. It is in the index
// of a layout, as in exports of containerd.
const nameKey = "io.containerd.image.name"

// A Descriptor points to a blob (OCI image specification, descriptor.md).
type Descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int64             `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    json.RawMessage   `json:"platform,omitempty"`
}

type index struct {
	SchemaVersion int          `json:"schemaVersion"`
	Manifests     []Descriptor `json:"manifests"`
}

// A Layout is a directory in the form of an OCI image layout. Only one process
// may write it at a time. Readers always see a complete index.
type Layout struct {
	Dir string
}

// Find returns the descriptor of an image or of a blob. name is the full name
// of the image, such as docker.io/library/nginx:1, or the digest of the blob.
// The error is fs.ErrNotExist if the layout has neither.
func (l Layout) Find(name string) (Descriptor, error) {
	in, err := l.read()
	if err != nil {
		return Descriptor{}, err
	}
	for _, d := range in.Manifests {
		if d.Annotations[nameKey] == name || d.Digest == name {
			return d, nil
		}
	}
	return Descriptor{}, fmt.Errorf("image %s in %s: %w", name, l.Dir, fs.ErrNotExist)
}

// Names returns the full names of all images.
func (l Layout) Names() ([]string, error) {
	in, err := l.read()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, d := range in.Manifests {
		names = append(names, d.Annotations[nameKey])
	}
	slices.Sort(names)
	return names, nil
}

// Import adds the first image of an OCI archive (a layout as a tar file), and
// gives it a full name.
func (l Layout) Import(archive, name string) error {
	f, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("import image %s: %w", name, err)
	}
	defer f.Close()
	var in index
	for t := tar.NewReader(f); ; {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("import image %s from %s: %w", name, archive, err)
		}
		switch file := filepath.Clean(h.Name); {
		case h.Typeflag != tar.TypeReg:
		case file == "index.json":
			err = json.NewDecoder(t).Decode(&in)
		case strings.HasPrefix(file, "blobs/sha256/"):
			_, err = l.blob(t)
		}
		if err != nil {
			return fmt.Errorf("import image %s: %s of %s: %w", name, h.Name, archive, err)
		}
	}
	if len(in.Manifests) == 0 {
		return fmt.Errorf("import image %s: %s names no image: not an OCI archive", name, archive)
	}
	return l.name(name, in.Manifests[0])
}

// name gives a manifest a full name. It removes another image with that name.
func (l Layout) name(name string, d Descriptor) error {
	in, err := l.read()
	if err != nil {
		return err
	}
	d.Annotations = map[string]string{nameKey: name}
	in.SchemaVersion = 2
	in.Manifests = append(slices.DeleteFunc(in.Manifests, func(old Descriptor) bool { return old.Annotations[nameKey] == name }), d)
	text, err := json.Marshal(in)
	if err != nil {
		return err
	}
	if err := l.replace("oci-layout", []byte(`{"imageLayoutVersion":"1.0.0"}`)); err != nil {
		return err
	}
	return l.replace("index.json", text)
}

func (l Layout) read() (index, error) {
	var in index
	text, err := os.ReadFile(filepath.Join(l.Dir, "index.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return in, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &in)
	}
	if err != nil {
		return in, fmt.Errorf("image index of %s: %w", l.Dir, err)
	}
	return in, nil
}

func (l Layout) replace(name string, text []byte) error {
	part := filepath.Join(l.Dir, "."+name)
	if err := os.WriteFile(part, text, 0o644); err != nil {
		return err
	}
	return os.Rename(part, filepath.Join(l.Dir, name))
}

// path returns the file of a blob.
func (l Layout) path(digest string) string {
	return filepath.Join(l.Dir, "blobs", "sha256", strings.TrimPrefix(digest, "sha256:"))
}

// blob stores the content of r and returns its digest and size.
func (l Layout) blob(r io.Reader) (Descriptor, error) {
	dir := filepath.Join(l.Dir, "blobs", "sha256")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Descriptor{}, err
	}
	part, err := os.CreateTemp(dir, ".part-*")
	if err != nil {
		return Descriptor{}, err
	}
	defer os.Remove(part.Name()) // no effect after the rename
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(part, sum), r)
	if err = errors.Join(err, part.Close()); err != nil {
		return Descriptor{}, err
	}
	d := Descriptor{Digest: "sha256:" + hex.EncodeToString(sum.Sum(nil)), Size: n}
	return d, os.Rename(part.Name(), l.path(d.Digest))
}

// prune removes the blobs that no image of the index uses.
func (l Layout) prune() error {
	in, err := l.read()
	if err != nil {
		return err
	}
	used := make(map[string]bool)
	for _, d := range in.Manifests {
		var manifest struct {
			Config Descriptor
			Layers []Descriptor
		}
		text, err := os.ReadFile(l.path(d.Digest))
		if err == nil {
			err = json.Unmarshal(text, &manifest)
		}
		if err != nil {
			return fmt.Errorf("image %s: %w", d.Annotations[nameKey], err)
		}
		for _, b := range append(manifest.Layers, d, manifest.Config) {
			used[l.path(b.Digest)] = true
		}
	}
	blobs, err := filepath.Glob(l.path("*"))
	for _, blob := range blobs {
		if !used[blob] {
			err = errors.Join(err, os.Remove(blob))
		}
	}
	return err
}
