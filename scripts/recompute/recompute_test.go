// Package recompute_test runs the program of this folder, which computes the
// figures of the pages again.
package recompute_test

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// python runs a program of this folder in Python. The test is skipped where Python or
// the command that unpacks archives is missing.
func python(t *testing.T, args ...string) (out []byte, ok bool) {
	t.Helper()
	for _, name := range []string{"python3", "zstd"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("TENON_TEST_STRICT") == "1" {
				t.Fatalf("TENON_TEST_STRICT is set, and the figures cannot be computed: %v", err)
			}
			t.Skipf("the figures cannot be computed: %v", err)
		}
	}
	// Go caches the result of a test, and sees only the files that the test opens itself.
	for _, read := range []string{"*.py", "figures.txt", "../../README.md", "../../docs/*.md", "../../docs/experiments/*/*", "../../docs/experiments/*/*/*"} {
		names, err := filepath.Glob(read)
		if err != nil || len(names) == 0 {
			t.Fatalf("%s: %d files, %v", read, len(names), err)
		}
		for _, name := range names {
			if _, err := os.Stat(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	// -B: Python leaves no compiled files in the tree.
	out, err := exec.Command("python3", append([]string{"-B"}, args...)...).CombinedOutput()
	return out, err == nil
}

// TestEachPrintedFigureIsComputedAgain fails if README.md or docs/results.md print a
// figure that is not the one of the raw data, or one that figures.txt does not know.
// It also computes the claims of each experiment whose modes take turns, and with
// TENON_TEST_LONG=1 the percentiles of the runs from their histograms.
func TestEachPrintedFigureIsComputedAgain(t *testing.T) {
	args := []string{"recompute.py"}
	if os.Getenv("TENON_TEST_LONG") == "1" {
		args = append(args, "--histograms")
	}
	out, ok := python(t, args...)
	if !ok {
		t.Errorf("recompute.py:\n%s", out)
	}
	t.Logf("%s", out)
}

// TestTheDefinitionsGivePublishedValues compares the statistics with tables in print.
func TestTheDefinitionsGivePublishedValues(t *testing.T) {
	if out, ok := python(t, "-m", "doctest", "estimates.py"); !ok {
		t.Errorf("%s", out)
	}
}

// page makes a folder with a README of the given text, a list of its figures, and the
// experiments of this tree.
func page(t *testing.T, text, figures string) (root, list string) {
	t.Helper()
	root = t.TempDir()
	experiments, err := filepath.Abs("../../docs/experiments")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(root, "docs"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(experiments, filepath.Join(root, "docs", "experiments")); err != nil {
		t.Fatal(err)
	}
	list = filepath.Join(root, "figures.txt")
	for name, content := range map[string]string{filepath.Join(root, "README.md"): text, list: figures} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return root, list
}

func TestAWrongFigureIsFound(t *testing.T) {
	const figures = "let redis = 2026-11-24-redis-beside-memory-and-xz\npage README.md\n" +
		"Redis waits # times as long (# to #).\n\tratio waiting burstable/tenon redis : v lo hi\n" +
		"| P90 (ms) | # |\n\tmedian p90-all tenon redis : ms\n"
	const table = "\n\n| | Tenon |\n| --- | --- |\n| P90 (ms) | 0.050 |\n"
	for name, c := range map[string]struct{ text, figures, want string }{
		"the right one":          {"Redis waits **49 times** as\nlong ([32 to 75](a.md))." + table, figures, ""},
		"another figure":         {"Redis waits 49 times as long (33 to 75)." + table, figures, "printed 33, computed 32."},
		"too many digits":        {"Redis waits 49.0 times as long (32 to 75)." + table, figures, "printed 49.0, computed "},
		"a figure without a row": {"Redis waits 49 times as long (32 to 75). It is 12 % slower." + table, figures, "figures.txt does not know the figure: "},
		"a cell without a row":   {"Redis waits 49 times as long (32 to 75)." + table + "| P99 | 0.66 |\n", figures, "»0.66«"},
		"a phrase that is gone":  {"Redis waits long." + table, figures, "README.md has this phrase 0 times, want once: "},
		"a phrase twice":         {"Redis waits 49 times as long (32 to 75). Redis waits 49 times as long (32 to 75)." + table, figures, "has this phrase 2 times"},
		"no such quantity":       {"Redis waits 49 times as long (32 to 75)." + table, strings.Replace(figures, "ratio", "rate", 1), "there is no quantity rate"},
		"no such experiment":     {"Redis waits 49 times as long (32 to 75)." + table, strings.Replace(figures, "-xz", "-gz", 1), "there is no such folder"},
		"rounded up":             {"Redis waits 49 times as long (32 to 75)." + table, strings.Replace(figures, "v lo hi", "v+ lo- hi+", 1), ""},
		"not rounded up":         {"Redis waits 48 times as long (32 to 75)." + table, strings.Replace(figures, "v lo hi", "v+ lo hi", 1), "printed 48, computed 48."},
		"no reason":              {"Redis waits 49 times as long (32 to 75)." + table, strings.Replace(figures, "median p90-all tenon redis : ms", "given 0.050", 1), "want a reason"},
	} {
		t.Run(name, func(t *testing.T) {
			root, list := page(t, c.text, c.figures)
			out, ok := python(t, "recompute.py", "--root", root, "--figures", list, "--pages-only")
			if ok != (c.want == "") || !strings.Contains(string(out), c.want) {
				t.Errorf("ok %v, want %q in\n%s", ok, c.want, out)
			}
		})
	}
}

// TestAWrongClaimAboutTurnsIsFound changes a bound in the result of an experiment whose
// modes take turns, if there is one.
func TestAWrongClaimAboutTurnsIsFound(t *testing.T) {
	results, err := filepath.Glob("../../docs/experiments/*/result.json")
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(results, func(name string) bool {
		var r struct {
			Experiment struct{ Design string }
		}
		text, err := os.ReadFile(name)
		return err == nil && json.Unmarshal(text, &r) == nil && r.Experiment.Design == "switch"
	})
	if at < 0 {
		t.Skip("no published experiment has modes that take turns")
	}
	dir := t.TempDir()
	text, err := os.ReadFile(results[at])
	if err != nil {
		t.Fatal(err)
	}
	raw, err := filepath.Abs(filepath.Join(filepath.Dir(results[at]), "raw.tar.zst"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(raw, filepath.Join(dir, "raw.tar.zst")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		with string
		ok   bool
	}{{`"upper_bound": `, true}, {`"upper_bound": 1`, false}} {
		changed := strings.ReplaceAll(string(text), `"upper_bound": `, c.with)
		if err := os.WriteFile(filepath.Join(dir, "result.json"), []byte(changed), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, ok := python(t, "recompute.py", dir); ok != c.ok {
			t.Errorf("upper bounds begin with %q: ok %v\n%s", c.with, ok, out)
		}
	}
}
