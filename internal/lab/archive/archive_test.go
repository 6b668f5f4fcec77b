package archive

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/klauspost/compress/zstd"
)

// experiment writes the given files and also README.md and result.json into a
// new folder.
func experiment(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	all := map[string]string{"README.md": "# Question\n", "result.json": "{}\n", "report.html": "<html></html>\n"}
	maps.Copy(all, files)
	for name, text := range all {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// experimentFiles returns the files of an experiment with two runs.
func experimentFiles() map[string]string {
	return map[string]string{
		"experiment.json": `{"schema": 1}`,
		"runs/000-a.json": `{"mode": "a"}`, "runs/000-a.hlog": "HISTFAAA\n",
		"runs/001-b.json": `{"mode": "b"}`, "runs/001-b.hlog": strings.Repeat("HISTFBBB\n", 10_000),
	}
}

// filesOf lists the files below dir.
func filesOf(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && name != "." {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestPackedExperimentHasTheSameRawData(t *testing.T) {
	dir := experiment(t, experimentFiles())
	p, err := Pack(dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"README.md", Name, "result.json"}; !slices.Equal(filesOf(t, dir), want) {
		t.Errorf("left in the folder: %q, want %q", filesOf(t, dir), want)
	}
	if p.Files != 5 || p.RawBytes != 90_048 || p.Bytes <= 0 || p.Bytes > 1000 {
		t.Errorf("packed %+v", p)
	}
	packed, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range experimentFiles() {
		if got, err := fs.ReadFile(packed, name); err != nil || string(got) != want {
			t.Errorf("%s: %v, %d bytes, want %d", name, err, len(got), len(want))
		}
	}
	names, err := fs.Glob(packed, "runs/*.json")
	if err != nil || !slices.Equal(names, []string{"runs/000-a.json", "runs/001-b.json"}) {
		t.Errorf("runs: %q, %v", names, err)
	}
	if err := fstest.TestFS(packed, slices.Collect(maps.Keys(experimentFiles()))...); err != nil {
		t.Error(err)
	}
}

func TestFolderWithoutAnArchiveIsReadAsItIs(t *testing.T) {
	dir := experiment(t, experimentFiles())
	folder, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := fs.ReadFile(folder, "runs/000-a.hlog"); err != nil || string(got) != "HISTFAAA\n" {
		t.Errorf("%q, %v", got, err)
	}
}

func TestSameFilesGiveTheSameArchive(t *testing.T) {
	var archives [][]byte
	for i := range 2 {
		dir := experiment(t, experimentFiles())
		for name := range experimentFiles() {
			p := filepath.Join(dir, name)
			day := time.Date(2026, 1, 1+i, 0, 0, 0, 0, time.UTC)
			if err := os.Chtimes(p, day, day); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(p, fs.FileMode(0o600|i<<2)); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := Pack(dir); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(filepath.Join(dir, Name))
		if err != nil {
			t.Fatal(err)
		}
		archives = append(archives, data)
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of the same files differ")
	}
}

func TestScriptsStayExecutable(t *testing.T) {
	dir := experiment(t, map[string]string{"ab.sh": "#!/bin/sh\n", "who.txt": "nginx\n"})
	if err := os.Chmod(filepath.Join(dir, "ab.sh"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Pack(dir); err != nil {
		t.Fatal(err)
	}
	packed, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]fs.FileMode{"ab.sh": 0o755, "who.txt": 0o644} {
		if info, err := fs.Stat(packed, name); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	// Without experiment.json, the page cannot be made again, so it must stay.
	if !exists(dir, pageFile) {
		t.Errorf("%s is removed although it cannot be made again from the raw data", pageFile)
	}
}

func TestPackedSubfolderStays(t *testing.T) {
	dir := experiment(t, map[string]string{
		"notes.txt": "a\n", "more/experiment.json": "{}", "more/result.json": "{}", "more/runs/000-a.json": "{}",
	})
	for _, folder := range []string{filepath.Join(dir, "more"), dir} {
		if _, err := Pack(folder); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"README.md", "more", "more/" + Name, "more/result.json", Name, "report.html", "result.json"}
	if got := filesOf(t, dir); !slices.Equal(got, want) {
		t.Errorf("left in the folder: %q, want %q", got, want)
	}
}

// TestInterruptedPackingGoesOn interrupts Pack while it removes files, and
// calls Pack again. The second call must complete the work of the first one. It
// must not remove a file that was changed or added meanwhile.
func TestInterruptedPackingGoesOn(t *testing.T) {
	dir := experiment(t, experimentFiles())
	if _, err := Pack(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "runs"), 0o755); err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(dir, "runs", "001-b.json")
	if err := os.WriteFile(left, []byte(`{"mode": "b"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if p, err := Pack(dir); err != nil || p.Files != 5 {
		t.Errorf("Pack: %+v, %v", p, err)
	}
	if exists(dir, "runs") {
		t.Error("runs is left")
	}
	for name, c := range map[string]struct{ file, text, want string }{
		"changed": {"experiment.json", `{"schema": 2}`, "differs from the one in raw.tar.zst"},
		"new":     {"later.txt", "x\n", "raw.tar.zst has no later.txt"},
	} {
		p := filepath.Join(dir, c.file)
		if err := os.WriteFile(p, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Pack(dir); err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "no file was removed") {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
		if got, err := os.ReadFile(p); err != nil || string(got) != c.text {
			t.Errorf("%s: %q, %v", name, got, err)
		}
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFoldersThatAreNotPacked(t *testing.T) {
	link := experiment(t, experimentFiles())
	if err := os.Symlink("/etc/passwd", filepath.Join(link, "passwd")); err != nil {
		t.Fatal(err)
	}
	other := experiment(t, map[string]string{"a.txt": "a"})
	if err := os.Remove(filepath.Join(other, "README.md")); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dir, want string }{
		"no experiment": {other, "is it the folder of an experiment?"},
		"no raw data":   {experiment(t, nil), "no raw data"},
		"repository":    {experiment(t, map[string]string{".git/HEAD": "ref"}), ".git is hidden"},
		"link":          {link, "passwd is not a regular file"},
	} {
		before := filesOf(t, c.dir)
		if _, err := Pack(c.dir); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
		if after := filesOf(t, c.dir); !slices.Equal(before, after) {
			t.Errorf("%s: the folder had %q and has %q", name, before, after)
		}
	}
}

// TestAClaimReplacesNothing claims folders in which a file of the user has the name
// of a file of an experiment. The file may also be a symbolic link.
func TestAClaimReplacesNothing(t *testing.T) {
	for _, name := range written {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("mine"), 0o644); err != nil {
			t.Fatal(err)
		}
		want := path
		if name == ExperimentFile || name == Name {
			want = "there is an experiment already"
		}
		if err := Claim(dir); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", name, err, want)
		}
		if err := errors.Join(os.Remove(path), os.Symlink(filepath.Join(t.TempDir(), "elsewhere"), path)); err != nil {
			t.Fatal(err)
		}
		if err := Claim(dir); err == nil {
			t.Errorf("%s: a link is taken for no file", name)
		}
		if f, err := OpenToAppend(path); err == nil {
			t.Errorf("%s: opened %s through a link", name, f.Name())
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "README.md"), []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Claim(dir); err != nil {
		t.Errorf("a folder with a file of another name: %v", err)
	}
}

// TestAPackPassesOverUnfinishedWrites packs a folder in which a killed lab left the
// temporary file of an atomic write.
func TestAPackPassesOverUnfinishedWrites(t *testing.T) {
	files := experimentFiles()
	files[".result.json.tmp-123"] = "{"
	dir := experiment(t, files)
	if _, err := Pack(dir); err != nil {
		t.Fatal(err)
	}
	raw, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fs.Stat(raw, ".result.json.tmp-123"); err == nil {
		t.Error("the temporary file is in the archive")
	}
}

// compressed returns a compressed tar file of the entries.
func compressed(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	out := tar.NewWriter(&b)
	for _, h := range entries {
		h.Mode = 0o644
		if err := out.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := out.Write(make([]byte, h.Size)); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return frame(t, b.Bytes())
}

// frame compresses data as one frame.
func frame(t *testing.T, data []byte) []byte {
	t.Helper()
	zip, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		t.Fatal(err)
	}
	return zip.EncodeAll(data, nil)
}

func TestBadArchivesAreOneClearError(t *testing.T) {
	file := func(name string, size int64) tar.Header {
		return tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}
	}
	good := compressed(t, file("a.json", 5000), file("b.json", 5000))
	if _, err := read(bytes.NewReader(good), most); err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)-1] ^= 1 // damage the checksum
	twoFrames := append(bytes.Clone(good), good...)
	padded := append(bytes.Clone(good), frame(t, make([]byte, 10_000))...)
	if m, err := read(bytes.NewReader(padded), most); err != nil || len(m) != 2 {
		t.Errorf("zeros after the end: %d files, %v", len(m), err)
	}
	small := bounds{bytes: 8000, files: 2, window: 1 << 20}
	for name, c := range map[string]struct {
		data []byte
		most bounds
		want string
	}{
		"empty":               {nil, most, "no file in it"},
		"no zstd":             {[]byte("PK\x03\x04 and more of a zip file"), most, "not compressed with zstd"},
		"no tar":              {frame(t, bytes.Repeat([]byte("no tar file "), 100)), most, "not a tar file"},
		"cut short":           {good[:len(good)-20], most, "ends too early"},
		"wrong checksum":      {flipped, most, "damaged"},
		"second tar behind":   {twoFrames, most, "more data after the end"},
		"zeros without end":   {append(bytes.Clone(good), frame(t, make([]byte, 2<<20))...), most, "more data after the end"},
		"no file":             {compressed(t), most, "no file in it"},
		"up and away":         {compressed(t, file("../a", 1)), most, `entry "../a": want a relative path`},
		"up inside":           {compressed(t, file("runs/../../a", 1)), most, "want a relative path"},
		"absolute":            {compressed(t, file("/etc/passwd", 1)), most, "want a relative path"},
		"backslashes":         {compressed(t, file(`..\a`, 1)), most, "want a relative path"},
		"link":                {compressed(t, tar.Header{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "/etc/passwd"}), most, `entry "a" is not a regular file`},
		"device":              {compressed(t, tar.Header{Typeflag: tar.TypeChar, Name: "null"}), most, "is not a regular file"},
		"folder up and away":  {compressed(t, tar.Header{Typeflag: tar.TypeDir, Name: "../x/"}), most, "is not a regular file"},
		"twice":               {compressed(t, file("a", 1), file("a", 1)), most, `entry "a" is there twice`},
		"file as a folder":    {compressed(t, file("a", 1), file("a/b", 1)), most, `below the file "a"`},
		"folder as a file":    {compressed(t, file("a/b", 1), file("a", 1)), most, `entry "a" is there twice`},
		"huge":                {compressed(t, file("a", 9000)), small, `entry "a" has 9000 bytes: more than 8000 bytes in all`},
		"huge together":       {good, small, `entry "b.json" has 5000 bytes`},
		"many":                {compressed(t, file("a", 1), file("b", 1), file("c", 1)), small, "more than 2 files"},
		"window of the frame": {append([]byte("\x28\xb5\x2f\xfd\x00\xff"), make([]byte, 100)...), most, "more memory than an experiment"},
	} {
		_, err := read(bytes.NewReader(c.data), c.most)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want one line with %q", name, err, c.want)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, Name), good[:20], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); err == nil || !strings.Contains(err.Error(), filepath.Join(dir, Name)) {
		t.Errorf("Open: %v, want an error that names the archive", err)
	}
}

// FuzzRead checks what read returns for any input: either an error, or a valid
// file system within the bounds.
func FuzzRead(f *testing.F) {
	for _, h := range []tar.Header{
		{Typeflag: tar.TypeReg, Name: "runs/000-a.json", Size: 10},
		{Typeflag: tar.TypeReg, Name: "../a", Size: 1},
		{Typeflag: tar.TypeSymlink, Name: "a", Linkname: "b"},
	} {
		var b bytes.Buffer
		out := tar.NewWriter(&b)
		_ = out.WriteHeader(&h)
		_, _ = out.Write(make([]byte, h.Size))
		_ = out.Close()
		f.Add(b.Bytes())
	}
	few := bounds{bytes: 1 << 16, files: 8, window: 1 << 20}
	f.Fuzz(func(t *testing.T, unpacked []byte) {
		for _, data := range [][]byte{unpacked, frame(t, unpacked)} {
			m, err := read(bytes.NewReader(data), few)
			if err != nil {
				continue
			}
			files := 0
			for _, f := range m {
				if !f.Mode.IsDir() {
					files++
				}
			}
			if files == 0 || files > few.files {
				t.Fatalf("%d files", files)
			}
			if err := fstest.TestFS(m, slices.Collect(maps.Keys(m))...); err != nil {
				t.Fatal(err)
			}
		}
	})
}
