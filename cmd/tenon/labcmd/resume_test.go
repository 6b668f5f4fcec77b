package labcmd

import (
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/report"
)

// TestAnExperimentGoesOnWithItsFlags reads the flags from the record of an experiment.
func TestAnExperimentGoesOnWithItsFlags(t *testing.T) {
	record := func(kind string, command ...string) string {
		dir := t.TempDir()
		e := colocation.Experiment{}
		e.Schema, e.Kind, e.Command = report.Schema, kind, command
		if err := report.Create(dir, &e); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	began := []string{"/usr/bin/tenon", "lab", "colocation", "--service", "redis", "--batch", "xz", "--batch", "memory", "--campaign", "--out", "elsewhere", "--seed=7"}
	for name, c := range map[string]struct {
		dir   string
		flags []string
		want  string // error
	}{
		"as it began":            {record(colocation.Kind, began...), nil, ""},
		"another flag":           {record(colocation.Kind, began...), []string{"--starts", "9"}, "leave out --starts"},
		"another experiment":     {record("memory", began...), nil, "kind"},
		"the published commands": {record(colocation.Kind, "tenon", "lab", "published", "colocation"), nil, "want tenon lab colocation"},
		"no experiment":          {t.TempDir(), nil, "experiment.json"},
	} {
		cmd := NewColocation(Frame{})
		if err := cmd.ParseFlags(append([]string{"--resume", c.dir}, c.flags...)); err != nil {
			t.Fatal(err)
		}
		err := asRecorded(cmd, c.dir)
		if c.want != "" {
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: error %v, want %q", name, err, c.want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for flag, want := range map[string]string{"service": "redis", "batch": "[xz,memory]", "campaign": "true", "out": c.dir, "seed": "7"} {
			if got := cmd.Flag(flag).Value.String(); got != want {
				t.Errorf("%s: --%s is %s, want %s", name, flag, got, want)
			}
		}
	}
}
