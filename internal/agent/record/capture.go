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

// Capture copies what the ring in stateDir holds to w, the oldest turn first,
// as one compressed file that Replay reads (and zcat). It returns the number
// of ticks. The recorder may go on meanwhile, or be dead.
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
	turns := 0
	for _, f := range files {
		n, err := copyLines(z, f.path)
		if err != nil {
			return turns, fmt.Errorf("capture: %w", err)
		}
		turns += n
	}
	if turns == 0 {
		return 0, fmt.Errorf("capture: %w in %s", ErrNone, dir)
	}
	if err := z.Close(); err != nil {
		return turns, fmt.Errorf("capture: %w", err)
	}
	return turns, nil
}

// copyLines copies the whole lines of one file. One that has left the ring
// meanwhile has none. What is damaged ends it, as a crash does: the next file
// stands for itself.
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
