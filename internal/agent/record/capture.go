package record

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ErrNone means that there is no record to capture.
var ErrNone = errors.New("there is no record")

// Capture copies the ring in stateDir to w as one compressed file, oldest tick
// first. Replay and zcat can read this file. Capture returns the number of ticks.
// It also works while the recorder runs, and after a crash of the recorder.
func Capture(stateDir string, w io.Writer) (int, error) {
	dir := filepath.Join(stateDir, subdir)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("capture: %w in %s", ErrNone, dir)
	}
	files, err := list(dir)
	if err != nil {
		return 0, err
	}
	z := gzip.NewWriter(w)
	ticks := 0
	for _, f := range files {
		n, err := copyLines(z, f.path)
		if err != nil {
			return ticks, fmt.Errorf("capture: %w", err)
		}
		ticks += n
	}
	if ticks == 0 {
		return 0, fmt.Errorf("capture: %w in %s", ErrNone, dir)
	}
	if err := z.Close(); err != nil {
		return ticks, fmt.Errorf("capture: %w", err)
	}
	return ticks, nil
}

// copyLines copies the complete lines of one file. If the recorder has removed
// the file meanwhile, it copies none. It stops at the first damaged line, which
// may come from a crash. The next file does not depend on this one.
func copyLines(w io.Writer, path string) (int, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer f.Close()
	from, err := newLines(f)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	for n := 0; ; n++ {
		text, err := from.next()
		if err != nil {
			return n, nil
		}
		if _, err := w.Write(append(text, '\n')); err != nil {
			return n, err
		}
	}
}
