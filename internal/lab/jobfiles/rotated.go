package jobfiles

import (
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/lab/jobs"
)

// gzipped is how the name of a compressed log ends.
const gzipped = ".gz"

// rotatedName matches the name of a part of a log: the log's name and a number (Docker)
// or a time (the kubelet).
var rotatedName = regexp.MustCompile(`^(.+\.log)\.(\d{1,4}|\d{8}-\d{6})(\.gz)?$`)

// isRotated reports whether a file is an older part of a log that stands beside it.
func isRotated(path string) bool {
	m := rotatedName.FindStringSubmatch(path)
	if m == nil {
		return false
	}
	_, err := os.Lstat(m[1])
	return err == nil
}

// rotatedParts returns the older parts of a log, beginning with the oldest one. They
// stand beside the file to which the path leads.
func rotatedParts(path string) ([]string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(filepath.Dir(real))
	if err != nil {
		return nil, err
	}
	type part struct {
		path, when string
		number     int
	}
	var parts []part
	for _, e := range entries {
		m := rotatedName.FindStringSubmatch(e.Name())
		if m == nil || m[1] != filepath.Base(real) {
			continue
		}
		p := part{path: filepath.Join(filepath.Dir(real), e.Name()), when: m[2]}
		if len(m[2]) <= 4 {
			if p.number, err = strconv.Atoi(m[2]); err != nil {
				return nil, err
			}
			p.when = ""
		}
		parts = append(parts, p)
	}
	// The largest number is the oldest part, and the largest time the newest.
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(cmp.Compare(b.number, a.number), cmp.Compare(a.when, b.when)) })
	var paths []string
	for _, p := range parts {
		paths = append(paths, p.path)
	}
	return paths, nil
}

// readLog reads a log with its older parts. Each may be compressed. A part that cannot
// be decompressed makes the log a damaged one.
func readLog(path string) (jobs.Log, error) {
	parts, err := rotatedParts(path)
	if err != nil {
		return jobs.Log{}, err
	}
	var all []io.Reader
	for _, name := range append(parts, path) {
		f, err := openLog(name)
		if err != nil {
			return jobs.Log{}, err
		}
		defer f.Close()
		var r io.Reader = f
		if strings.HasSuffix(name, gzipped) {
			r = &unzipping{from: f}
		}
		all = append(all, r)
	}
	return jobs.ReadLog(io.MultiReader(all...))
}

// unzipping decompresses from its first byte on, so that a damaged header is an error
// of reading. An empty file has no content.
type unzipping struct {
	from io.Reader
	to   io.Reader
}

func (u *unzipping) Read(p []byte) (int, error) {
	if u.to == nil {
		z, err := gzip.NewReader(u.from)
		if errors.Is(err, io.EOF) {
			return 0, io.EOF
		}
		if err != nil {
			return 0, fmt.Errorf("decompress: %w", err)
		}
		u.to = z
	}
	n, err := u.to.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("decompress: %w", err)
	}
	return n, err
}

// openLog opens a regular file. To open a pipe would wait for a writer.
func openLog(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return os.Open(path)
}
