package concurrency

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"tenon.sh/tenon/internal/lab/jobfiles"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report/synthetic"
)

// TestEveryPublishedShapeIsImported imports rows of 12, 13 and 14 columns, logs
// of both runtimes, a log whose last line is incomplete, and a memory of 0.8Gi.
// The imported jobs must be the same after they are written and read back.
func TestEveryPublishedShapeIsImported(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/import.txtar")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, f := range archive.Files {
		switch {
		case bytes.Contains(f.Data, []byte(`"stream":"std`+"\n")): // the archive ends each file with a line end
			write(t, filepath.Join(dir, f.Name), strings.TrimSuffix(string(f.Data), "\n"))
		default:
			write(t, filepath.Join(dir, f.Name), string(f.Data))
		}
	}
	in, err := jobfiles.ReadPaths([]string{filepath.Join(dir, "tables", "jobs.csv"), filepath.Join(dir, "logs", "node00"), filepath.Join(dir, "logs", "worker-1")})
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := jobs.WriteTable(&got, in.Jobs); err != nil {
		t.Fatal(err)
	}
	if in.Tables != 1 || in.Logs != 3 || in.Passed[jobfiles.OtherPod].Count+in.Passed[jobfiles.Other].Count != 1 {
		t.Errorf("%d tables, %d logs, passed over %+v: want 1, 3, and one other", in.Tables, in.Logs, in.Passed)
	}
	synthetic.CheckGolden(t, "import.csv", got.Bytes())
	again, err := jobs.ReadTable(bytes.NewReader(got.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	var back bytes.Buffer
	if err := jobs.WriteTable(&back, again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(got.String(), back.String()); diff != "" {
		t.Errorf("read back, the table is another one:\n%s", diff)
	}
}
