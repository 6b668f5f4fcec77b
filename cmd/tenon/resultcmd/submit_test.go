package resultcmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/colocation/run"
	"tenon.sh/tenon/internal/lab/colocation/submission"
	"tenon.sh/tenon/internal/lab/harness"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
)

// results writes the results of one block of the protocol's experiment.
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
	if err := report.Create(dir, &e); err != nil {
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

// TestNothingIsWrittenWithoutConsent checks each possible answer to the
// question.
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
		cmd := NewSubmit(Frame{})
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
	cmd := NewSubmit(Frame{})
	cmd.SetArgs([]string{"--from", t.TempDir()})
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.Execute(); err == nil || !strings.Contains(err.Error(), "only an experiment that tenon lab submit ran") {
		t.Errorf("error %v", err)
	}
}

// TestASubmitWhoseRunsCannotBeRead has runs but no findings.
func TestASubmitWhoseRunsCannotBeRead(t *testing.T) {
	unreadable := errors.New("line 7 ends with CR alone")
	cmd := NewSubmit(Frame{
		Prepare:    func(*run.Config) error { return nil },
		Experiment: func(_ *cobra.Command, run func(context.Context) error) error { return run(t.Context()) },
		Colocate: func(context.Context, run.Config) (harness.Outcome, error) {
			return harness.Outcome{Runs: 1}, unreadable
		},
	})
	cmd.SetArgs([]string{"--out", filepath.Join(t.TempDir(), "results")})
	cmd.SetErr(io.Discard)
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	if err := cmd.Execute(); !errors.Is(err, unreadable) {
		t.Errorf("error %v", err)
	}
}

// TestASubmitThatEndsEarly ends the experiment in each of its stages. Then it
// runs the experiment again in the same directory.
func TestASubmitThatEndsEarly(t *testing.T) {
	ends := errors.New("it ends here")
	for name, c := range map[string]struct {
		runs    bool
		conduct func(run.Config) error
		left    []string
	}{
		"a check of the machine fails": {false, func(run.Config) error { return ends }, nil},
		"the calibration fails":        {false, func(c run.Config) error { return errors.Join(c.Claim(), ends) }, nil},
		"before the first run": {false, func(c run.Config) error {
			return errors.Join(c.Claim(), report.Create(c.Out, &colocation.Experiment{}), ends)
		}, nil},
		"after some runs": {true, func(c run.Config) error {
			return errors.Join(c.Claim(), report.Create(c.Out, &colocation.Experiment{}), ends)
		}, []string{"experiment.json", "protocol.json"}},
	} {
		dir := filepath.Join(t.TempDir(), "results")
		var out bytes.Buffer
		submit := func() error {
			cmd := NewSubmit(Frame{
				Prepare:    func(*run.Config) error { return nil },
				Experiment: func(_ *cobra.Command, run func(context.Context) error) error { return run(t.Context()) },
				Colocate: func(_ context.Context, config run.Config) (o harness.Outcome, err error) {
					if c.runs {
						o.Runs, o.Findings = 7, colocation.Analyse(colocation.Experiment{}, nil)
					}
					return o, c.conduct(config)
				},
			})
			cmd.SetArgs([]string{"--out", dir})
			cmd.SetOut(&out)
			cmd.SetErr(&out)
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			return cmd.Execute()
		}
		if err := submit(); !errors.Is(err, ends) {
			t.Errorf("%s: %v", name, err)
		}
		var left []string
		entries, _ := os.ReadDir(dir) // an error means that there is no directory
		for _, e := range entries {
			left = append(left, e.Name())
		}
		if !slices.Equal(left, c.left) {
			t.Errorf("%s: left %v, want %v", name, left, c.left)
		}
		if said := strings.Contains(out.String(), "has 7 runs. To submit them: tenon lab submit --from "+dir); said != c.runs {
			t.Errorf("%s: said\n%s", name, &out)
		}
		if err := submit(); errors.Is(err, ends) == c.runs {
			t.Errorf("%s, again: %v", name, err)
		}
	}
}
