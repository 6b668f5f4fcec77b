package tenon_test

import (
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// experiments is the folder of the measured experiments.
const experiments = "docs/experiments"

// The size limits of experiments, in bytes. largeExperiments lists the larger
// ones with their sizes; they cannot shrink, because their histograms are
// already compressed and are stored in base64, or because they have many cells.
const (
	maxExperimentBytes = 200_000
	maxTextBytes       = 8 << 10 // raw data as text; larger data go into the archive
)

var largeExperiments = map[string]int{
	"2026-11-27-floor-on-a-cluster":         900_000,
	"2026-11-30-published-concurrency-grid": 262_000,
	"2026-11-27-weight-against-idle":        260_000,
	"2026-11-27-trial-on-a-node":            360_000,
	"2026-11-25-memcached-beside-compile":   720_000,
	"2026-11-27-postgres-beside-xz":         460_000,
	"2026-11-25-floor-campaign-2":           575_000,
	"2026-11-25-floor-campaign-3":           564_000,
	"2026-11-24-floor-campaign-1":           285_000,
	"2026-11-25-self-on-two-cpus":           254_000,
	"2026-11-24-floor-beside-default":       224_000,
	"2026-11-24-redis-beside-memory-and-xz": 855_000,
	"2026-11-21-colocation-rule-corrected":  355_000,
	"2026-11-21-colocation-two-cpus":        1_240_000,
	"2026-11-28-colocation-soak":            620_000,
	"2026-11-30-modes-take-turns":           600_000,
	"2026-11-22-colocation-long-slices":     927_000,
	"2026-11-22-colocation-ninety-minutes":  3_550_000,
	"2026-11-22-colocation-on-kubernetes":   352_000,
	"2026-11-22-hour-replayed":              625_000,
	"2026-11-22-reaction":                   247_000,
	"2026-11-22-tenond-beside-the-lab":      290_000,
}

// machinePath is a path that only one machine has: of a file below the home of a
// user, or of the program in a recorded command. An experiment must not contain
// one; archives are compressed, so that only their result is checked.
var machinePath = regexp.MustCompile(`/(root|home/\w+)/[\w.]+|"/[^"\n]*/tenond?"`)

// TestExperimentsAreLight checks that raw data are in archives, that each
// folder is small, and that the index lists each experiment.
func TestExperimentsAreLight(t *testing.T) {
	sizes, text := map[string]int{}, map[string]int{}
	var pages []string
	err := filepath.WalkDir(experiments, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		inside := strings.TrimPrefix(filepath.ToSlash(name), experiments+"/")
		folder, _, isInside := strings.Cut(inside, "/")
		if !isInside {
			if inside != "README.md" {
				t.Errorf("%s: only the index may be beside the experiments", name)
			}
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		switch base := path.Base(inside); {
		case base == "report.html":
			return nil // made by tenon lab report and not tracked (.gitignore)
		case base == "README.md":
			pages = append(pages, folder)
		case base == "result.json", base == "table.txt", base == "raw.tar.zst":
		case path.Ext(base) == ".txt":
			text[folder] += int(info.Size())
		default:
			t.Errorf("%s: raw data belong in raw.tar.zst (tenon lab pack)", name)
		}
		sizes[folder] += int(info.Size())
		if content, err := os.ReadFile(name); err != nil || machinePath.Match(content) {
			t.Errorf("%s names a path of one machine (%v): %s", name, err, machinePath.Find(content))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	keepWithin(t, "experiment", "bytes", sizes, maxExperimentBytes, largeExperiments)
	for folder, n := range text {
		if n > maxTextBytes {
			t.Errorf("%s: %d bytes of text files beside table.txt, more than %d: pack them (tenon lab pack)", folder, n, maxTextBytes)
		}
	}
	index, err := os.ReadFile(filepath.Join(experiments, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, folder := range slices.Sorted(maps.Keys(sizes)) {
		if !slices.Contains(pages, folder) {
			t.Errorf("%s has no README.md", folder)
		}
		if n := strings.Count(string(index), "("+folder+"/README.md)"); n != 1 {
			t.Errorf("%s is linked %d times from the index, want once", folder, n)
		}
	}
}

// keepWithin fails for each size above the limit (most), unless an exception
// allows that size. It also fails for each exception that is not needed any
// more, or that could be lower by a tenth.
func keepWithin(t *testing.T, kind, unit string, sizes map[string]int, most int, exceptions map[string]int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		size, limit := sizes[name], most
		if e, ok := exceptions[name]; ok {
			limit = e
			if size <= most {
				t.Errorf("%s %s has %d %s now: take it out of the exceptions", kind, name, size, unit)
			} else if size*10 < e*9 {
				t.Errorf("%s %s has %d %s now: lower its exception, which is %d", kind, name, size, unit, e)
			}
		}
		if size > limit {
			t.Errorf("%s %s has %d %s, more than %d", kind, name, size, unit, limit)
		}
	}
	for name := range exceptions {
		if _, ok := sizes[name]; !ok {
			t.Errorf("%s %s has an exception but does not exist", kind, name)
		}
	}
}
