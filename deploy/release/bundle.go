package main

import (
	"archive/tar"
	_ "embed"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/template"

	"tenon.sh/tenon/deploy/pack"
)

//go:embed install.md.tmpl
var steps string

// manual writes how to install the release where nothing can be fetched.
func (r *release) manual(images []pack.Image) error {
	t, err := template.New("install").Parse(steps)
	if err != nil {
		return err
	}
	var named []map[string]string
	for _, i := range images {
		named = append(named, map[string]string{"Name": i.Builds[0].Product.Name, "Digest": i.Digest.String()})
	}
	return pack.WriteFile(filepath.Join(r.out, "INSTALL.md"), func(w io.Writer) error {
		return t.Execute(w, map[string]any{"Version": r.Version, "Chart": r.chartFile(), "Images": named})
	})
}

// licences writes the licence of each module of which the release contains code.
func (r *release) licences() error {
	all := map[pack.Module]bool{}
	for _, b := range r.builds {
		for _, m := range b.Modules {
			all[m] = true
		}
	}
	lines := []string{}
	for m := range maps.Keys(all) {
		lines = append(lines, fmt.Sprintf("%s %s\t%s\n", m.Path, m.Version, m.Licence))
	}
	slices.Sort(lines)
	return pack.WriteFile(filepath.Join(r.out, "LICENCES.txt"), func(w io.Writer) error {
		_, err := io.WriteString(w, strings.Join(lines, ""))
		return err
	})
}

// sums writes the checksums of all files, in the form of sha256sum.
func (r *release) sums() error {
	var all strings.Builder
	names, err := r.files()
	if err != nil {
		return err
	}
	for _, name := range names {
		sum, err := sumOf(filepath.Join(r.out, name))
		if err != nil {
			return err
		}
		fmt.Fprintf(&all, "%s  %s\n", sum, filepath.ToSlash(name))
	}
	return pack.WriteFile(filepath.Join(r.out, sumsFile), func(w io.Writer) error {
		_, err := io.WriteString(w, all.String())
		return err
	})
}

// files returns the files of the release, in order.
func (r *release) files() (names []string, err error) {
	err = filepath.WalkDir(r.out, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(r.out, path)
		names = append(names, name)
		return err
	})
	slices.Sort(names)
	return names, err
}

// bundle packs all files into one.
func (r *release) bundle() error {
	names, err := r.files()
	if err != nil {
		return err
	}
	folder := "tenon-" + r.Version
	path := filepath.Join(r.out, folder+"-bundle.tar")
	err = pack.WriteFile(path, func(w io.Writer) error {
		t := tar.NewWriter(w)
		for _, name := range names {
			if err := r.add(t, folder, name); err != nil {
				return err
			}
		}
		return t.Close()
	})
	if err != nil {
		return err
	}
	sum, err := sumOf(path)
	fmt.Println("sha256:"+sum, path)
	return err
}

// add adds a file of the release to a tar file.
func (r *release) add(t *tar.Writer, folder, name string) error {
	f, err := os.Open(filepath.Join(r.out, name))
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Typeflag: tar.TypeReg, Name: folder + "/" + filepath.ToSlash(name), Mode: 0o644, Size: info.Size(), ModTime: r.Created, Format: tar.FormatUSTAR}
	if err := t.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(t, f)
	return err
}
