package image

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// A Root is the content of an image before it is packed. The key of a file is
// its path in the image, without the leading slash.
type Root struct {
	entries map[string]entry
}

type entry struct {
	header tar.Header
	from   string // path of a file of this machine; empty: text is the content
	text   []byte
}

// Dir adds a folder and its parents.
func (r *Root) Dir(name string, mode int64) {
	name = strings.Trim(name, "/")
	if name == "" || name == "." {
		return
	}
	r.Dir(filepath.Dir(name), 0o755)
	if _, there := r.entries[name]; !there || mode != 0o755 {
		r.add(name, entry{header: tar.Header{Typeflag: tar.TypeDir, Mode: mode}})
	}
}

// Text adds a file with this content.
func (r *Root) Text(name string, mode int64, text string) {
	r.Dir(filepath.Dir(name), 0o755)
	r.add(name, entry{header: tar.Header{Typeflag: tar.TypeReg, Mode: mode, Size: int64(len(text))}, text: []byte(text)})
}

// Link adds a symbolic link.
func (r *Root) Link(name, target string) {
	r.Dir(filepath.Dir(name), 0o755)
	r.add(name, entry{header: tar.Header{Typeflag: tar.TypeSymlink, Mode: 0o777, Linkname: target}})
}

// File adds a copy of a file of this machine.
func (r *Root) File(name, from string) error {
	from, err := filepath.EvalSymlinks(from)
	if err != nil {
		return fmt.Errorf("add %s to an image: %w", name, err)
	}
	info, err := os.Stat(from)
	if err != nil {
		return fmt.Errorf("add %s to an image: %w", name, err)
	}
	r.Dir(filepath.Dir(name), 0o755)
	r.add(name, entry{header: tar.Header{Typeflag: tar.TypeReg, Mode: int64(info.Mode().Perm()), Size: info.Size()}, from: from})
	return nil
}

// Program adds a program of this machine and its shared libraries, at the paths
// where the loader looks for them.
func (r *Root) Program(name, from string) error {
	if err := r.File(name, from); err != nil {
		return err
	}
	out, err := exec.Command("ldd", from).CombinedOutput()
	if strings.Contains(string(out), "not a dynamic executable") {
		return nil
	}
	if err != nil {
		return fmt.Errorf("ask for the libraries of %s: %w: %s", from, err, bytes.TrimSpace(out))
	}
	for line := range strings.Lines(string(out)) {
		for _, word := range strings.Fields(line) {
			if !strings.HasPrefix(word, "/") {
				continue
			}
			if err := r.File(word, word); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *Root) add(name string, e entry) {
	if r.entries == nil {
		r.entries = make(map[string]entry)
	}
	name = strings.TrimPrefix(name, "/")
	e.header.Name = name
	if e.header.Typeflag == tar.TypeDir {
		e.header.Name += "/"
	}
	r.entries[name] = e
}

// pack writes the root as a layer. The same files always give the same bytes.
func (r *Root) pack(w io.Writer) error {
	t := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(r.entries)) {
		e := r.entries[name]
		if err := t.WriteHeader(&e.header); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
		if e.header.Typeflag != tar.TypeReg {
			continue
		}
		content := io.Reader(bytes.NewReader(e.text))
		if e.from != "" {
			f, err := os.Open(e.from)
			if err != nil {
				return err
			}
			defer f.Close()
			content = f
		}
		if _, err := io.Copy(t, content); err != nil {
			return fmt.Errorf("pack %s: %w", name, err)
		}
	}
	return t.Close()
}

// Add adds an image of one layer to the layout. entry is the command of a
// container that specifies no command.
func (l Layout) Add(name string, root *Root, entry ...string) error {
	r, w := io.Pipe()
	go func() { w.CloseWithError(root.pack(w)) }()
	layer, err := l.blob(r)
	if err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	layer.MediaType = typeLayer
	config, err := l.document(typeConfig, map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": entry, "Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer.Digest}},
	})
	if err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	manifest, err := l.document(typeManifest, map[string]any{
		"schemaVersion": 2, "mediaType": typeManifest, "config": config, "layers": []Descriptor{layer},
	})
	if err != nil {
		return fmt.Errorf("make image %s: %w", name, err)
	}
	return l.name(name, manifest)
}

func (l Layout) document(mediaType string, value any) (Descriptor, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return Descriptor{}, err
	}
	d, err := l.blob(bytes.NewReader(text))
	d.MediaType = mediaType
	return d, err
}
