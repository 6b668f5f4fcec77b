package typed

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var testFunction = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// Tests returns the names of all tests below root, a folder of this repository.
// The scenarios of the policies are TestScenarios/NAME. Tests of pages compare
// with it the tests that a page names.
func Tests(root string) (map[string]bool, error) {
	all := map[string]bool{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != root:
			return fs.SkipDir
		case strings.Contains(filepath.ToSlash(path), "policy/testdata/") && strings.HasSuffix(path, ".txt"):
			all["TestScenarios/"+strings.TrimSuffix(d.Name(), ".txt")] = true
		case strings.HasSuffix(path, "_test.go"):
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range testFunction.FindAllSubmatch(text, -1) {
				all[string(m[1])] = true
			}
		}
		return nil
	})
	return all, err
}
