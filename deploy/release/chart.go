package main

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tenon.sh/tenon/deploy/pack"
)

// sections names the part of the chart's values that has an image.
var sections = map[string]string{"tenond": "agent", "tenon-manager": "manager", "tenon-scheduler": "scheduler"}

// chart packs the chart. Its version and appVersion are those of the release, and its
// values have the digests of the images, which the tag could not name for ever.
func (r *release) chart(images []pack.Image) error {
	dir := filepath.Join(r.Root, "deploy", "chart", "tenon")
	var files []pack.File
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		switch name {
		case "Chart.yaml":
			text, err = changed(text, "\nversion: 0.1.0\n", "\nversion: "+r.chartVersion()+"\n", "\nappVersion: latest\n", "\nappVersion: "+r.Version+"\n")
		case "values.yaml":
			text, err = r.values(text, images)
		}
		files = append(files, pack.File{Name: "tenon/" + filepath.ToSlash(name), Data: text, Mode: 0o644})
		return err
	})
	if err != nil {
		return fmt.Errorf("pack the chart: %w", err)
	}
	return pack.WriteFile(filepath.Join(r.out, r.chartFile()), func(w io.Writer) error { return pack.TarGz(w, files, r.Created) })
}

// chartVersion returns the version of the release in the form of charts, which have no v.
func (r *release) chartVersion() string { return strings.TrimPrefix(r.Version, "v") }

func (r *release) chartFile() string { return "tenon-" + r.chartVersion() + ".tgz" }

// values enters the registry and the digests of the images into the values of the
// chart. It leaves everything else, and the comments, as they are.
func (r *release) values(text []byte, images []pack.Image) ([]byte, error) {
	const digest = `    digest: ""`
	var err error
	if r.registry != "" {
		if text, err = changed(text, "\n  registry: \"\"\n", "\n  registry: "+r.registry+"\n"); err != nil {
			return nil, err
		}
	}
	for _, i := range images {
		section := "\n" + sections[i.Builds[0].Product.Name] + ":\n"
		before, rest, found := strings.Cut(string(text), section)
		if !found || !strings.Contains(rest, digest) {
			return nil, fmt.Errorf("values.yaml has no %q with %q", section, digest)
		}
		text = []byte(before + section + strings.Replace(rest, digest, "    digest: "+i.Digest.String(), 1))
	}
	return text, nil
}

// changed replaces texts, each of which must be there once.
func changed(text []byte, pairs ...string) ([]byte, error) {
	for i := 0; i < len(pairs); i += 2 {
		if n := strings.Count(string(text), pairs[i]); n != 1 {
			return nil, fmt.Errorf("%q is there %d times, and not once", pairs[i], n)
		}
		text = []byte(strings.Replace(string(text), pairs[i], pairs[i+1], 1))
	}
	return text, nil
}
