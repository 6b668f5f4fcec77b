package restore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"tenon.sh/tenon/internal/machine/statedir"
)

// formerNames are names that state files had before the first version.
var formerNames = []string{"ladder.json"}

// otherForms returns the state files in dir whose form this program does not
// read. It leaves a file that is no JSON to the reader of that file.
func otherForms(dir string) (paths []string, err error) {
	for _, name := range formerNames {
		path := filepath.Join(dir, name)
		switch _, err := os.Lstat(path); {
		case err == nil:
			paths = append(paths, path)
		case !errors.Is(err, fs.ErrNotExist):
			return nil, err
		}
	}
	for _, name := range []string{statedir.MemoryFile, statedir.MechanismsFile} {
		path := filepath.Join(dir, name)
		text, err := statedir.ReadFile(path)
		var form struct {
			Version int `json:"version"`
		}
		if err == nil && json.Unmarshal(text, &form) == nil && form.Version != statedir.Version {
			paths = append(paths, path)
		}
	}
	return paths, nil
}

// RefuseOtherForms returns an error if dir holds a state file of another form
// while changes of Tenon are in force: without the file, workloads could get
// other CPUs while they run, and an operator's choice would be lost. Without such
// changes, nothing needs the file, and it is removed. inForce returns the changes.
func RefuseOtherForms(ctx context.Context, dir string, inForce func(context.Context) (Report, error), log *slog.Logger) error {
	paths, err := otherForms(dir)
	if err != nil || len(paths) == 0 {
		return err
	}
	if left, err := inForce(ctx); err != nil || !left.Empty() {
		return errors.Join(fmt.Errorf("%s: it was written by another release of Tenon, in a form that this one does not read (want version %d), and the changes of that release are in force: "+
			"run tenon restore --state-dir %s, which undoes them, and start tenond again; or start the other release", paths[0], statedir.Version, dir), err)
	}
	for _, path := range paths {
		if err := statedir.Remove(path); err != nil {
			return fmt.Errorf("remove the state of another release of Tenon: %w", err)
		}
		log.Info("removed the state of another release of Tenon: none of its changes is in force", "file", path)
	}
	return nil
}
