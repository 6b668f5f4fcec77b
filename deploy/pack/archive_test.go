package pack

import (
	"archive/zip"
	"bytes"
	"io"
	"testing"
	"time"
)

// TestAnArchiveDependsOnlyOnItsFiles packs the same files in another order.
func TestAnArchiveDependsOnlyOnItsFiles(t *testing.T) {
	created := time.Unix(1_700_000_000, 0).UTC()
	files := []File{{"tenon", []byte("program"), 0o755}, {"licenses/LICENSE", []byte("text"), 0o644}}
	other := []File{files[1], files[0]}
	for name, form := range map[string]func(io.Writer, []File, time.Time) error{"tar": Tar, "tar.gz": TarGz, "zip": Zip} {
		var a, b, later bytes.Buffer
		for _, err := range []error{form(&a, files, created), form(&b, other, created), form(&later, files, created.Add(time.Hour))} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) {
			t.Errorf("%s depends on the order of the files", name)
		}
		if bytes.Equal(a.Bytes(), later.Bytes()) {
			t.Errorf("%s has not the time of the sources", name)
		}
	}
}

// TestAZipHasTheFiles reads an archive for Windows.
func TestAZipHasTheFiles(t *testing.T) {
	var data bytes.Buffer
	if err := Zip(&data, []File{{"kubectl-tenon.exe", []byte("program"), 0o755}}, time.Unix(1_700_000_000, 0).UTC()); err != nil {
		t.Fatal(err)
	}
	r, err := zip.NewReader(bytes.NewReader(data.Bytes()), int64(data.Len()))
	if err != nil || len(r.File) != 1 || r.File[0].Name != "kubectl-tenon.exe" {
		t.Fatalf("%v, %v", r, err)
	}
	f, err := r.File[0].Open()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if text, err := io.ReadAll(f); err != nil || string(text) != "program" {
		t.Errorf("%q, %v", text, err)
	}
}
