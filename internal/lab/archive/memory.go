package archive

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"
)

// memory is a read-only file system with the files of an archive.
type memory struct {
	files   map[string]file
	folders map[string][]fs.DirEntry // sorted by name after list
}

func newMemory() memory {
	return memory{files: map[string]file{}, folders: map[string][]fs.DirEntry{".": nil}}
}

// add adds a file. It refuses a path that leads out of the folder, a path that
// exists already, and a path below another file.
func (m memory) add(name string, data []byte, perm fs.FileMode) error {
	if !fs.ValidPath(name) || name == "." || strings.Contains(name, `\`) {
		return fmt.Errorf("entry %.200q: want a relative path without the elements . and .. in it", name)
	}
	_, isFile := m.files[name]
	_, isFolder := m.folders[name]
	if isFile || isFolder {
		return fmt.Errorf("entry %.200q is there twice", name)
	}
	for above := path.Dir(name); above != "."; above = path.Dir(above) {
		if _, ok := m.files[above]; ok {
			return fmt.Errorf("entry %.200q lies below the file %.200q", name, above)
		}
		m.folders[above] = nil
	}
	m.files[name] = file{name: path.Base(name), data: data, mode: perm}
	return nil
}

// list builds the listings of the folders after all files have been added.
func (m memory) list() {
	for name := range m.folders {
		if name != "." {
			m.folders[path.Dir(name)] = append(m.folders[path.Dir(name)], fs.FileInfoToDirEntry(folder(path.Base(name))))
		}
	}
	for name, f := range m.files {
		m.folders[path.Dir(name)] = append(m.folders[path.Dir(name)], fs.FileInfoToDirEntry(f))
	}
	for _, entries := range m.folders {
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	}
}

// Open implements fs.FS.
func (m memory) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	if f, ok := m.files[name]; ok {
		return &openFile{Reader: bytes.NewReader(f.data), file: f}, nil
	}
	if entries, ok := m.folders[name]; ok {
		return &openFolder{folder: folder(path.Base(name)), left: entries}, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// A file is a file of an archive. It is also its own fs.FileInfo.
type file struct {
	name string
	data []byte
	mode fs.FileMode
}

func (f file) Name() string       { return f.name }
func (f file) Size() int64        { return int64(len(f.data)) }
func (f file) Mode() fs.FileMode  { return f.mode }
func (f file) ModTime() time.Time { return time.Time{} }
func (f file) IsDir() bool        { return false }
func (f file) Sys() any           { return nil }

// A folder is the fs.FileInfo of a folder of an archive. Its value is the name.
type folder string

func (f folder) Name() string     { return string(f) }
func (folder) Size() int64        { return 0 }
func (folder) Mode() fs.FileMode  { return fs.ModeDir | 0o755 }
func (folder) ModTime() time.Time { return time.Time{} }
func (folder) IsDir() bool        { return true }
func (folder) Sys() any           { return nil }

type openFile struct {
	*bytes.Reader
	file file
}

func (o *openFile) Stat() (fs.FileInfo, error) { return o.file, nil }
func (o *openFile) Close() error               { return nil }

type openFolder struct {
	folder folder
	left   []fs.DirEntry
}

func (o *openFolder) Stat() (fs.FileInfo, error) { return o.folder, nil }
func (o *openFolder) Close() error               { return nil }

func (o *openFolder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: string(o.folder), Err: fs.ErrInvalid}
}

// ReadDir implements fs.ReadDirFile.
func (o *openFolder) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 || n > len(o.left) {
		if n > 0 && len(o.left) == 0 {
			return nil, io.EOF
		}
		n = len(o.left)
	}
	entries := slices.Clone(o.left[:n])
	o.left = o.left[n:]
	return entries, nil
}
