package testbed

import (
	"os"
	"path/filepath"
	"testing"

	"tenon.sh/tenon/internal/lab/archive"
)

// noProcess is more than PID_MAX_LIMIT of the kernel, so no process has this ID.
const noProcess = "4194305"

// TestALabRemovesOnlyTheDirectoriesOfKilledLabs has a directory with the results
// of an earlier lab, under its default name, beside temporary directories. Read
// as a process ID, the date in the default name is the ID of no process.
func TestALabRemovesOnlyTheDirectoriesOfKilledLabs(t *testing.T) {
	in := t.TempDir()
	t.Chdir(in)
	results := Setting{}.OrDefaults(t.Errorf).Out
	old := "tenon-lab-20260102-150405"
	dead, elsewhere := DirPrefix+noProcess+"-1", DirPrefix+noProcess+"-2"
	for _, dir := range []string{results, old, dead, elsewhere} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, archive.ExperimentFile), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	held, err := lockDirectory(elsewhere) // as a lab in another PID namespace does
	if err != nil {
		t.Fatal(err)
	}
	s := &Site{Status: &Status{}}
	live, err := s.Directory(in) // sweeps
	if err != nil {
		t.Fatal(err)
	}
	sweep(in)
	for _, dir := range []string{filepath.Join(results, archive.ExperimentFile), filepath.Join(old, archive.ExperimentFile), elsewhere, live} {
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("a lab removed it: %v", err)
		}
	}
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("%s of a killed lab is left: %v", dead, err)
	}
	held.Close() // as the kernel does when the other lab is killed
	sweep(in)
	if _, err := os.Stat(elsewhere); !os.IsNotExist(err) {
		t.Errorf("%s is left: %v", elsewhere, err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(live); !os.IsNotExist(err) {
		t.Errorf("%s is left after Close: %v", live, err)
	}
}
