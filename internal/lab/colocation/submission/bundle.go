package submission

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"tenon.sh/tenon/internal/lab/archive"
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/textlayout"
)

// manifestFile is the file that summarises a submission.
const manifestFile = "submission.json"

// A Manifest is the summary of a submission, with the hash of its other files.
type Manifest struct {
	Schema int `json:"schema"` // 1
	// Gate is the A/A control of P90. It shows whether the difference of two
	// equal modes is small enough for the margin of the protocol. Even if it is
	// too large, the submission is valid.
	Gate     report.Resolved `json:"aa_gate"`
	Ended    report.End      `json:"ended"`
	Runs     int             `json:"runs"`
	VoidRuns int             `json:"void_runs"`
	SHA256   string          `json:"sha256"`
}

// A Bundle is a submission before it is written to a file.
type Bundle struct {
	Manifest Manifest
	files    map[string][]byte
	shown    string
}

// Name returns the name of the file. It contains the beginning of the hash.
func (b Bundle) Name() string { return "tenon-submission-" + b.Manifest.SHA256[:12] + ".tar.zst" }

// Make makes a submission of the experiment in dir. It leaves out what is
// private. It fails if the experiment did not follow the protocol, or if a text
// that should be harmless contains a private word.
func Make(dir string, private Private) (Bundle, error) {
	p, err := readProtocol(dir)
	if err != nil {
		return Bundle{}, err
	}
	e, runs, err := report.Load[colocation.Experiment, colocation.Run](dir)
	if err != nil {
		return Bundle{}, err
	}
	if err := p.check(e); err != nil {
		return Bundle{}, err
	}
	raw, err := archive.Open(dir)
	if err != nil {
		return Bundle{}, err
	}
	b := Bundle{files: map[string][]byte{}, Manifest: Manifest{Schema: 1, Ended: e.Ended}}
	var clean []colocation.Run
	for _, r := range runs {
		c := runOf(r)
		clean = append(clean, c)
		name := fmt.Sprintf("runs/%03d-%s", r.Index, r.Mode)
		if err := b.add(private, name+".json", c); err != nil {
			return Bundle{}, err
		}
		log, err := fs.ReadFile(raw, name+".hlog")
		if err != nil {
			return Bundle{}, fmt.Errorf("read the histogram of run %d: %w", r.Index, err)
		}
		if b.files[name+".hlog"], err = histogramOf(log); err != nil {
			return Bundle{}, fmt.Errorf("the histogram of run %d: %w", r.Index, err)
		}
		b.Manifest.Runs++
		if len(r.Void) > 0 {
			b.Manifest.VoidRuns++
		}
	}
	if b.Manifest.Runs == 0 {
		return Bundle{}, errors.New("the experiment has no finished run")
	}
	cleanE := experimentOf(e, private)
	if err := errors.Join(b.add(private, report.ExperimentFile, cleanE), b.add(private, ProtocolFile, p)); err != nil {
		return Bundle{}, err
	}
	if control := colocation.Analyse(cleanE, clean).Base.Control; control != nil {
		b.Manifest.Gate = control.Metrics[report.P90.Key]
	}
	b.Manifest.SHA256 = hashOf(b.files)
	b.shown = b.show(p, cleanE, clean)
	return b, nil
}

// add adds a record as JSON.
func (b Bundle) add(private Private, name string, v any) error {
	if err := private.check(name, v); err != nil {
		return err
	}
	data, err := json.MarshalIndent(v, "", "  ")
	b.files[name] = append(data, '\n')
	return err
}

// aHistogram matches those lines of a histogram log that a submission contains.
// It does not match the comment with the URL of the service.
var aHistogram = regexp.MustCompile(`^(#\[(Histogram log format version|StartTime|BaseTime)[^/@]*\]|"StartTimestamp",.*|(Tag=[a-z]+,)?[0-9.,]+,HIST[A-Za-z0-9+/=]+)$`)

// histogramOf returns a log of histograms without its private comments.
func histogramOf(log []byte) ([]byte, error) {
	var out bytes.Buffer
	for line := range strings.Lines(string(log)) {
		text := strings.TrimRight(line, "\n")
		switch {
		case aHistogram.MatchString(text):
			out.WriteString(text + "\n")
		case !strings.HasPrefix(text, "#"):
			return nil, fmt.Errorf("the line %.40q is no histogram", text)
		}
	}
	return out.Bytes(), nil
}

// hashOf returns the SHA-256 of the names, lengths and contents of the files,
// ordered by name.
func hashOf(files map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if name != manifestFile {
			fmt.Fprintf(h, "%s\x00%d\x00", name, len(files[name]))
			h.Write(files[name])
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Shown returns the whole content of the submission, so that its owner can
// check it.
func (b Bundle) Shown() string { return b.shown }

func (b Bundle) show(p Protocol, e colocation.Experiment, runs []colocation.Run) string {
	var out bytes.Buffer
	size := 0
	for _, data := range b.files {
		size += len(data)
	}
	fmt.Fprintf(&out, "%s would have %d files, %d bytes before compression.\n\n", b.Name(), len(b.files)+1, size)
	fmt.Fprintln(&out, "The machine, in full:")
	facts := json.NewEncoder(&out)
	facts.SetEscapeHTML(false)
	facts.SetIndent("", "  ")
	_ = errors.Join(facts.Encode(e.Machine), facts.Encode(e.Versions)) // numbers and texts, to memory
	out.WriteByte('\n')
	textlayout.Paragraph(&out, "Protocol: ", fmt.Sprintf("%d, written %s, begun %s, ended %.80q; %d runs, %d of them void.", p.Version,
		p.Written.Format("2006-01-02 15:04:05"), e.Started.UTC().Format("2006-01-02 15:04:05"), e.Ended, b.Manifest.Runs, b.Manifest.VoidRuns))
	gate := "Two equal modes are alike enough for claims of " + report.Limit(p.Margin) + " at P90"
	if !b.Manifest.Gate.Resolves {
		gate = "Two equal modes are not alike enough for claims of " + report.Limit(p.Margin) + " at P90; the submission counts all the same"
	}
	textlayout.Paragraph(&out, "A/A gate: ", gate+": "+report.FormatRatio(b.Manifest.Gate.Ratio)+".")
	fields := fieldsOf("experiment", e)
	for _, r := range runs {
		fields = append(fields, fieldsOf("run", r)...)
	}
	slices.Sort(fields)
	textlayout.Paragraph(&out, "Fields: ", strings.Join(slices.Compact(fields), ", ")+".")
	textlayout.Paragraph(&out, "Histograms: ", "the latencies of each run, as counts.")
	textlayout.Paragraph(&out, "Not in it: ", "names of the machine and of users, paths, addresses, the command line, names of programs that disturbed a run, writes to the kernel.")
	return out.String()
}

// Write writes the submission into a folder and returns its path.
func (b Bundle) Write(dir string) (string, error) {
	files := maps.Clone(b.files)
	data, err := json.MarshalIndent(b.Manifest, "", "  ")
	if err != nil {
		return "", err
	}
	files[manifestFile] = append(data, '\n')
	path := filepath.Join(dir, b.Name())
	return path, archive.WriteFile(path, files)
}

// Check checks a submission. It returns an error if the files do not match the
// hash, or if this version does not know the protocol. If path is the folder of
// an experiment, Check returns nil.
func Check(path string) error {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() {
		return err
	}
	raw, err := archive.Open(path)
	if err != nil {
		return err
	}
	files := map[string][]byte{}
	err = fs.WalkDir(raw, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		files[name], err = fs.ReadFile(raw, name)
		return err
	})
	if err != nil {
		return err
	}
	var m Manifest
	var p Protocol
	var e colocation.Experiment
	for name, to := range map[string]any{manifestFile: &m, ProtocolFile: &p, report.ExperimentFile: &e} {
		if err := json.Unmarshal(files[name], to); err != nil {
			return fmt.Errorf("%s of the submission: %w", name, err)
		}
	}
	if got := hashOf(files); got != m.SHA256 {
		return fmt.Errorf("its files have the hash %.12s, and it says %.12s: it was changed", got, m.SHA256)
	}
	return p.check(e)
}
