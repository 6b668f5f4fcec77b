package metacmd

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/colocation/submission"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
)

// results writes one block of an experiment of the protocol.
func results(t *testing.T) string {
	t.Helper()
	dir, p := filepath.Join(t.TempDir(), "results"), submission.Fixed()
	log, err := os.ReadFile("../../../internal/lab/colocation/submission/testdata/run.hlog")
	if err != nil {
		t.Fatal(err)
	}
	e := colocation.Experiment{Experiment: synthetic.Experiment(1, p.Modes...)}
	e.Blocks, e.Duration, e.Margin, e.LoadPercent = p.Blocks, p.Duration, p.Margin, p.Load
	e.Started = time.Now()
	if err := p.Write(dir, e.Started.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := report.Create(dir, e); err != nil {
		t.Fatal(err)
	}
	for _, r := range synthetic.Runs(e.Experiment, 0.01) {
		if err := report.SaveRun(dir, &colocation.Run{Run: r}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "runs", fmt.Sprintf("%03d-%s.hlog", r.Index, r.Mode)), log, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestNothingIsWrittenWithoutConsent answers the question in each way.
func TestNothingIsWrittenWithoutConsent(t *testing.T) {
	from := results(t)
	for name, c := range map[string]struct {
		answer string
		args   []string
		writes bool
	}{
		"no answer":      {"", nil, false},
		"no":             {"n\n", nil, false},
		"another answer": {"maybe\n", nil, false},
		"yes":            {"y\n", nil, true},
		"--yes":          {"", []string{"--yes"}, true},
	} {
		to := t.TempDir()
		cmd := NewSubmit(Frame{Usage: func(err error) error { return err }})
		var out bytes.Buffer
		cmd.SetArgs(append([]string{"--from", from, "--to", to}, c.args...))
		cmd.SetIn(strings.NewReader(c.answer))
		cmd.SetOut(&out)
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		written, err := filepath.Glob(filepath.Join(to, "tenon-submission-*.tar.zst"))
		if err != nil || (len(written) == 1) != c.writes {
			t.Errorf("%s: wrote %v (%v)", name, written, err)
		}
		if !strings.Contains(out.String(), "The machine, in full:") {
			t.Errorf("%s: the content is not shown:\n%s", name, &out)
		}
	}
}

func TestSubmitRefusesAFolderWithoutAProtocol(t *testing.T) {
	cmd := NewSubmit(Frame{Usage: func(err error) error { return err }})
	cmd.SetArgs([]string{"--from", t.TempDir()})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "only an experiment that tenon lab submit ran") {
		t.Errorf("error %v", err)
	}
}
