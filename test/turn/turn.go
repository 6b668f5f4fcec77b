// Package turn divides the tests that check similar facts among the commits.
// For each commit some of these tests run; make soak runs all of them. The hash
// of the commit selects them, so a run can be repeated.
package turn

import (
	"crypto/sha256"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// variable is the environment variable with the turn: a commit or any other word,
// such as a number. The word all runs everything.
const variable = "TENON_TEST_KERNELS"

// All reports whether everything runs, as in make soak.
func All() bool { return os.Getenv(variable) == "all" }

// Choose returns one element of a list, or the whole list (see [All]). The turn
// comes from TENON_TEST_KERNELS, or else it is the commit of the working tree.
// Without both, Choose returns an error. Different lists choose independently of
// each other. For one list, different places below its length choose different
// elements.
func Choose(place int, list []string) ([]string, error) {
	if All() {
		return list, nil
	}
	turn, err := Name()
	if err != nil {
		return nil, err
	}
	return []string{list[(number(turn, list)+place)%len(list)]}, nil
}

// Name returns the word that selects the tests. A guest or a copy of the sources,
// which has no commit, gets it in TENON_TEST_KERNELS.
func Name() (string, error) {
	if turn := os.Getenv(variable); turn != "" {
		return turn, nil
	}
	commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("the commit is unknown, which selects the tests: %w: set %s to all, or to any word", err, variable)
	}
	return strings.TrimSpace(string(commit)), nil
}

// number returns a number below the length of a list, as likely as each other.
func number(turn string, list []string) int {
	sum := sha256.Sum256([]byte(turn + "\n" + strings.Join(list, "\n")))
	return int(binary.BigEndian.Uint64(sum[:]) % uint64(len(list)))
}

// Runs reports whether a test of a list runs for this commit. Those that run are
// every parts-th of the list, from a place that the commit selects. If the commit is
// unknown, all of them run.
func Runs(parts int, list []string, name string) bool {
	turn, err := Name()
	return err != nil || All() || (number(turn, list)+slices.Index(list, name))%parts == 0
}

// Skip skips a test of a list unless it runs for this commit (see [Runs]) or -run
// names it alone. Tests beside each other in the list never run for the same commit,
// so those that check the same kind of fact stand together.
func Skip(t testing.TB, parts int, list []string) {
	t.Helper()
	if !slices.Contains(list, t.Name()) {
		t.Fatalf("%s has no place in the rotation %q", t.Name(), list)
	}
	if only := flag.Lookup("test.run"); only != nil && strings.Trim(only.Value.String(), "^$") == t.Name() {
		return
	}
	if !Runs(parts, list, t.Name()) {
		t.Skipf("one of %d commits runs it: %s=all runs all, as make soak does", parts, variable)
	}
}

// Seeds returns the seeds of a random test for this commit: the first ones, which
// always run, and some more below the number all. In make soak it returns all.
func Seeds(first []uint64, more int, all uint64) []uint64 {
	turn, err := Name()
	switch {
	case All():
		first = nil
		for s := range all {
			first = append(first, s)
		}
	case err == nil:
		first = slices.Clone(first)
		for i := range more {
			sum := sha256.Sum256([]byte(turn + "\n" + strconv.Itoa(i)))
			first = append(first, binary.BigEndian.Uint64(sum[:])%all)
		}
	}
	return first
}
