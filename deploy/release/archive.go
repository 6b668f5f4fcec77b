package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"tenon.sh/tenon/deploy/pack"
)

// An archive is one product for one platform.
type archive struct {
	pack.Platform
	Program string // the first program in it
	URI     string
	SHA256  string
}

// archives builds a product for platforms.
func (r *release) archives(ctx context.Context, p pack.Product, on []pack.Platform) (all []archive, err error) {
	for _, platform := range on {
		a, err := r.archive(ctx, p, platform)
		if err != nil {
			return nil, err
		}
		all = append(all, a)
	}
	return all, nil
}

// archive builds a product and packs its programs with their licences: for Windows as
// .zip, for others as .tar.gz.
func (r *release) archive(ctx context.Context, p pack.Product, on pack.Platform) (archive, error) {
	b, err := r.Build(ctx, p, on)
	if err != nil {
		return archive{}, fmt.Errorf("make %s for %s: %w", p.Name, on, err)
	}
	if err := r.keep(b); err != nil {
		return archive{}, err
	}
	form, ending := pack.TarGz, ".tar.gz"
	if on.OS == "windows" {
		form, ending = pack.Zip, ".zip"
	}
	name := p.Name + "-" + r.Version + "-" + on.String() + ending
	path := filepath.Join(r.out, name)
	err = pack.WriteFile(path, func(w io.Writer) error { return form(w, slices.Concat(b.Programs, b.Texts), r.Created) })
	if err != nil {
		return archive{}, err
	}
	sum, err := sumOf(path)
	uri := name
	if r.downloads != "" {
		uri = strings.TrimSuffix(r.downloads, "/") + "/" + name
	}
	return archive{on, b.Programs[0].Name, uri, sum}, err
}

// sumOf returns the SHA-256 of a file as hexadecimal digits.
func sumOf(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// krewManifest is a plugin manifest of Krew, https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest.
var krewManifest = template.Must(template.New("krew").Parse(`apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: tenon
spec:
  version: {{.Version}}
  homepage: {{.Home}}
  shortDescription: Say what Tenon does on nodes and with pods
  description: |
    Tenon runs best-effort pods in the CPU and memory that services leave idle. This
    plugin says what nodes found, decided and can do, which CPUs a pod has and why, and
    what is wrong with the installation.
  platforms:
{{- range .Plugins}}
    - selector:
        matchLabels: {os: {{.OS}}, arch: {{.Arch}}}
      uri: {{.URI}}
      sha256: {{.SHA256}}
      bin: {{.Program}}
{{- end}}
`))

// krew writes the manifest by which Krew installs the plugin.
func (r *release) krew() error {
	return pack.WriteFile(filepath.Join(r.out, "krew", "tenon.yaml"), func(w io.Writer) error {
		return krewManifest.Execute(w, struct {
			Version, Home string
			Plugins       []archive
		}{r.Version, pack.Source, r.plugins})
	})
}
