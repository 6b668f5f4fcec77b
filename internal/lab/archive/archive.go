// Package archive keeps the raw data of an experiment in one file, raw.tar.zst.
// To read the data, it opens that file. If there is none, it opens the files
// that the lab wrote.
package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing/fstest"

	"github.com/klauspost/compress/zstd"
)

// Name is the name of the archive in the folder of an experiment. The archive
// is a tar file (POSIX.1-2001) in one Zstandard frame (RFC 8878).
const Name = "raw.tar.zst"

// ExperimentFile is the file that describes an experiment and its machine. It
// is in the folder of the experiment or in the archive.
const ExperimentFile = "experiment.json"

// bounds describes the largest archive that is read, so that a crafted archive
// cannot fill the memory. The longest experiment so far took ninety minutes and
// has 809 files with 8 MB. The bounds are more than a hundred times that.
type bounds struct {
	bytes  int64 // of all files together, uncompressed
	files  int
	window uint64 // size of the decompressor's window in bytes
}

var most = bounds{bytes: 1 << 30, files: 100_000, window: 128 << 20}

// Exists reports whether the folder has an archive.
func Exists(dir string) bool {
	_, err := os.Lstat(filepath.Join(dir, Name))
	return err == nil
}

// Open returns the raw data of the experiment in dir: the content of its
// archive. If there is no archive, Open returns the folder itself. Open reads
// the whole archive into memory, so that it reports a damaged archive before
// the analysis starts. dir may also be the path of an archive with another
// name, such as a submission. Errors name the archive.
func Open(dir string) (fs.FS, error) {
	name := filepath.Join(dir, Name)
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		name = dir
	}
	f, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return os.DirFS(dir), nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the archive: %w", err)
	}
	defer f.Close()
	raw, err := read(f, most)
	if err != nil {
		return nil, fmt.Errorf("read the archive %s: %w", f.Name(), err)
	}
	return raw, nil
}

// OpenExperiment does the same as Open and also returns the text of
// experiment.json.
func OpenExperiment(dir string) (fs.FS, []byte, error) {
	raw, err := Open(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("load experiment: %w", err)
	}
	data, err := fs.ReadFile(raw, ExperimentFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("load experiment: %s has no %s; is it the directory of an experiment?", dir, ExperimentFile)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("load experiment: %s: %w", dir, err)
	}
	return raw, data, nil
}

// written lists what the lab writes into the folder of an experiment, of any
// kind. A file with one of these names may belong to the user, or may be a link
// to a file elsewhere.
var written = []string{ExperimentFile, Name, "result.json", pageFile, "jobs.csv", "runs.jsonl", "steps.jsonl", "runs", "logs"}

// Claim makes dir the folder of a new experiment. It fails where CheckFree does.
func Claim(dir string) error {
	if err := CheckFree(dir); err != nil {
		return err
	}
	return os.MkdirAll(dir, 0o755)
}

// CheckFree returns an error if dir is a file, or contains a file that a new
// experiment would replace. A symbolic link counts as a file, even if it leads
// nowhere.
func CheckFree(dir string) error {
	info, err := os.Stat(dir)
	switch {
	case err == nil && !info.IsDir():
		return errors.New("it is not a directory")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return err
	}
	for _, name := range written {
		switch _, err := os.Lstat(filepath.Join(dir, name)); {
		case err == nil && (name == ExperimentFile || name == Name):
			return errors.New("there is an experiment already, choose another directory")
		case err == nil:
			return fmt.Errorf("there is a file %s already, which the experiment would replace, choose another directory", filepath.Join(dir, name))
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
	}
	return nil
}

// OpenToAppend opens a file of an experiment, to which rows are appended. It
// makes the file if there is none, and does not follow a symbolic link.
func OpenToAppend(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|syscall.O_NOFOLLOW, 0o644)
}

// CheckData returns an error if count, the number of complete runs, is 0. A
// report would replace earlier results by empty ones. raw is what
// OpenExperiment returned. name is the file or folder of the runs.
func CheckData(raw fs.FS, dir, name string, count int) error {
	if count > 0 {
		return nil
	}
	what := "has no complete run"
	if _, err := fs.Stat(raw, name); errors.Is(err, fs.ErrNotExist) {
		what = "is missing"
	}
	return fmt.Errorf("load experiment: %s %s: without these raw data there is nothing to report", filepath.Join(dir, name), what)
}

// MakeFolder makes the folder of an experiment, with a subfolder. It refuses a
// folder that has an archive, because readers would then ignore the files of
// new runs.
func MakeFolder(dir, sub string) error {
	if Exists(dir) {
		return fmt.Errorf("make the directory of the experiment: %s has the packed experiment %s: choose another directory", dir, Name)
	}
	if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
		return fmt.Errorf("make the directory of the experiment: %w", err)
	}
	return nil
}

// read unpacks an archive. An archive of an experiment contains no links and no
// devices, so read accepts only regular files with relative paths.
func read(from io.Reader, most bounds) (fstest.MapFS, error) {
	unzip, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(most.window))
	if err != nil {
		return nil, err
	}
	defer unzip.Close()
	m, files := fstest.MapFS{}, 0
	left, unpacked := most.bytes, tar.NewReader(unzip)
	for {
		h, err := unpacked.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, explainDamage(err)
		}
		if h.Typeflag == tar.TypeDir && fs.ValidPath(strings.TrimSuffix(h.Name, "/")) {
			continue // GNU tar also writes entries for folders
		}
		if h.Typeflag != tar.TypeReg {
			return nil, fmt.Errorf("entry %.200q is not a regular file (type %q)", h.Name, h.Typeflag)
		}
		if files++; files > most.files {
			return nil, fmt.Errorf("more than %d files", most.files)
		}
		if h.Size > left {
			return nil, fmt.Errorf("entry %.200q has %d bytes: more than %d bytes in all", h.Name, h.Size, most.bytes)
		}
		left -= h.Size
		data, err := io.ReadAll(unpacked)
		if err != nil {
			return nil, fmt.Errorf("entry %.200q: %w", h.Name, explainDamage(err))
		}
		if err := add(m, h.Name, data, h.FileInfo().Mode().Perm()); err != nil {
			return nil, err
		}
	}
	// The decompressor verifies its checksum at the end of the frame. The frame
	// ends after the tar file, and GNU tar fills the space between the two ends
	// with zeros.
	if rest, err := io.ReadAll(io.LimitReader(unzip, 1<<20)); err != nil {
		return nil, explainDamage(err)
	} else if len(rest) == 1<<20 || len(bytes.Trim(rest, "\x00")) > 0 {
		return nil, errors.New("more data after the end of the tar file")
	}
	if files == 0 {
		return nil, errors.New("no file in it: is it a tar file compressed with zstd?")
	}
	return m, nil
}

// add adds a file and the folders above it. It refuses a path that leads out of the
// folder, a path that exists already, and a path below another file.
func add(m fstest.MapFS, name string, data []byte, perm fs.FileMode) error {
	if !fs.ValidPath(name) || name == "." || strings.Contains(name, `\`) {
		return fmt.Errorf("entry %.200q: want a relative path without the elements . and .. in it", name)
	}
	if m[name] != nil {
		return fmt.Errorf("entry %.200q is there twice", name)
	}
	for above := path.Dir(name); above != "."; above = path.Dir(above) {
		if m[above] != nil && !m[above].Mode.IsDir() {
			return fmt.Errorf("entry %.200q lies below the file %.200q", name, above)
		}
		m[above] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
	}
	m[name] = &fstest.MapFile{Data: data, Mode: perm}
	return nil
}

// explainDamage explains an error of the decompressor or of the tar reader.
func explainDamage(err error) error {
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("it ends too early (was the copy interrupted?): %w", err)
	case errors.Is(err, zstd.ErrMagicMismatch):
		return fmt.Errorf("it is not compressed with zstd: %w", err)
	case errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return fmt.Errorf("it needs more memory than an experiment: %w", err)
	case errors.Is(err, tar.ErrHeader):
		return fmt.Errorf("it is not a tar file: %w", err)
	}
	return fmt.Errorf("it is damaged: %w", err)
}
