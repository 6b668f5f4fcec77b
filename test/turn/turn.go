// Package turn divides the tests that check similar facts among the commits.
// For each commit some of these tests run; make soak runs all of them. The hash
// of the commit selects them, so a run can be repeated.
package turn

import (
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"strings"
)

// variable is the environment variable with the number of the turn, or with the
// word all.
const variable = "TENON_TEST_KERNELS"

// turns is the number of turns. It can be divided by the lengths of most lists,
// so that all elements of a list are selected equally often.
const turns = 60

// All reports whether everything runs, as in make soak.
func All() bool { return os.Getenv(variable) == "all" }

// Choose returns one element of a list, or the whole list (see [All]). The index
// of the element is the number of the turn plus the given place. The number
// comes from TENON_TEST_KERNELS, or else from the commit of the working tree.
// Without both, Choose returns an error.
func Choose(place int, list []string) ([]string, error) {
	if All() {
		return list, nil
	}
	n, err := number()
	if err != nil {
		return nil, err
	}
	return []string{list[(int(n%uint(len(list)))+place)%len(list)]}, nil
}

func number() (n uint, err error) {
	text := os.Getenv(variable)
	if text == "" {
		commit, err := exec.Command("git", "rev-parse", "HEAD").Output()
		if err != nil {
			return 0, fmt.Errorf("the commit is unknown, which selects the tests: %w: set %s to all, or to a number", err, variable)
		}
		return Of(string(commit)), nil
	}
	if got, err := fmt.Sscan(text, &n); got != 1 || err != nil {
		return 0, fmt.Errorf("%s is %q: want all, or a number", variable, text)
	}
	return n, nil
}

// Of returns the number of a commit's turn.
func Of(commit string) uint {
	h := fnv.New32a()
	h.Write([]byte(strings.TrimSpace(commit)))
	return uint(h.Sum32() % turns)
}
