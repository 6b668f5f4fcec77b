package pack

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/google/licensecheck"
)

// licence returns the SPDX expression of a product's own sources. The BPF programs
// are GPL-2.0-only, because the kernel lends its helpers to such programs alone.
func (p Product) licence() string {
	if p.bpf {
		return "Apache-2.0 AND GPL-2.0-only"
	}
	return "Apache-2.0"
}

// A Module is a Go module of which a program contains code. The standard library is
// one, too, by the name stdlib.
type Module struct {
	Path, Version string
	Licence       string // an SPDX expression of all licences in its folder
}

// standard is the name of the standard library in package URLs.
const standard = "stdlib"

// modulesOf returns the modules of programs, without their licences, in order. Each
// program lists its modules.
func modulesOf(programs []File) ([]Module, error) {
	all := map[Module]bool{}
	for _, p := range programs {
		info, err := buildinfo.Read(bytes.NewReader(p.Data))
		if err != nil {
			return nil, fmt.Errorf("read the modules of %s: %w", p.Name, err)
		}
		all[Module{Path: standard, Version: info.GoVersion}] = true
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			// A module of this repository has a path on this machine in place of a version.
			if d.Version != "" && d.Version != "(devel)" {
				all[Module{Path: d.Path, Version: d.Version}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b Module) int { return strings.Compare(a.Path+a.Version, b.Path+b.Version) }), nil
}

// licenceFile matches the names of files with licences and notices.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright|unlicense)([-_.].*)?$`)

// noticeFile matches those of them that are no licences of code.
var noticeFile = regexp.MustCompile(`(?i)^((notice|copyright)([-_.].*)?|licen[cs]e\.docs)$`)

// allowed lists the licences that a release may contain. Each allows to pass on the
// programs under Tenon's own licence if its text stands beside them.
var allowed = []string{"Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "ISC", "MIT"}

// recognised is the part of a licence's text, in percent of its words, that must be
// the text of a known licence. The rest are names, and what a project says about them.
const recognised = 75

// licences returns the texts that a product must have beside its programs: Tenon's
// licences, and the licences and notices of each module. It enters the licence of each
// module. It returns an error if a module has none, or one that is not allowed.
func (o Order) licences(ctx context.Context, p Product, modules []Module) ([]File, error) {
	own, err := os.ReadFile(filepath.Join(o.Root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	texts := []File{{"licenses/LICENSE", own, 0o644}}
	if p.bpf {
		gpl, err := os.ReadFile(filepath.Join(o.Root, "bpf", "COPYING"))
		if err != nil {
			return nil, err
		}
		texts = append(texts, File{"licenses/COPYING", gpl, 0o644})
	}
	folders, err := o.folders(ctx, p, modules)
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	for i, m := range modules {
		if modules[i].Licence, err = appendLicences(&all, m, folders[m]); err != nil {
			return nil, err
		}
	}
	return append(texts, File{"licenses/THIRD-PARTY", all.Bytes(), 0o644}), nil
}

// folders returns where the sources of modules are on this machine.
func (o Order) folders(ctx context.Context, p Product, modules []Module) (map[Module]string, error) {
	all, args := map[Module]string{}, []string{"mod", "download", "-json"}
	for _, m := range modules {
		if m.Path != standard {
			args = append(args, m.Path+"@"+m.Version)
			continue
		}
		goroot, err := o.ask(ctx, p, "env", "GOROOT")
		if err != nil {
			return nil, err
		}
		all[m] = strings.TrimSpace(goroot)
	}
	listed, err := o.ask(ctx, p, args...)
	if err != nil {
		return nil, err
	}
	for d := json.NewDecoder(strings.NewReader(listed)); d.More(); {
		var m struct{ Path, Version, Dir string }
		if err := d.Decode(&m); err != nil {
			return nil, fmt.Errorf("list the modules: %w", err)
		}
		all[Module{Path: m.Path, Version: m.Version}] = m.Dir
	}
	return all, nil
}

// appendLicences appends the licences and notices of a module, which are in dir, and
// returns the licences as an SPDX expression.
func appendLicences(to *bytes.Buffer, m Module, dir string) (string, error) {
	what := "the licence of " + m.Path + " " + m.Version
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", what, err)
	}
	names := map[string]bool{}
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return "", fmt.Errorf("read %s: %w", what, err)
		}
		fmt.Fprintf(to, "==== %s %s: %s\n\n%s\n", m.Path, m.Version, e.Name(), text)
		if noticeFile.MatchString(e.Name()) {
			continue
		}
		found, share := licencesIn(text)
		if share < recognised {
			return "", fmt.Errorf("read %s: %s is no licence that is known (%.0f %% of its words, want %d %%)", what, e.Name(), share, recognised)
		}
		for _, name := range found {
			if !slices.Contains(allowed, name) {
				return "", fmt.Errorf("%s is %s, and a release may have %s only", what, name, strings.Join(allowed, ", "))
			}
			names[name] = true
		}
	}
	if len(names) == 0 {
		return "", fmt.Errorf("find %s: no file in %s has one", what, dir)
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), " AND "), nil
}

// licencesIn returns the SPDX names of the licences in a text, and how much of the text
// they are, in percent.
func licencesIn(text []byte) (names []string, share float64) {
	c := licensecheck.Scan(text)
	for _, m := range c.Match {
		if !m.IsURL {
			names = append(names, m.ID)
		}
	}
	return names, c.Percent
}

// ask runs the go command in the folder of a product's module.
func (o Order) ask(ctx context.Context, p Product, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = filepath.Join(o.Root, p.Module), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args[:min(len(args), 3)], " "), err)
	}
	return string(out), nil
}
