package main

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	"time"
)

// licence returns the SPDX expression of an image's own sources. The BPF programs
// are GPL-2.0-only, because the kernel lends its helpers to such programs alone.
func (p product) licence() string {
	if p.bpf {
		return "Apache-2.0 AND GPL-2.0-only"
	}
	return "Apache-2.0"
}

// A module is a Go module of which an image contains code.
type module struct{ path, version string }

// modulesOf returns the modules of the programs that were built in dir, in order.
// Each program lists its modules.
func (o order) modulesOf(ctx context.Context, dir string, p product) ([]module, error) {
	all := map[module]bool{}
	for _, name := range p.programs {
		info, err := buildinfo.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("read the modules of %s: %w", name, err)
		}
		for _, d := range info.Deps {
			if d.Replace != nil {
				d = d.Replace
			}
			// A module of this repository has a path on this machine in place of a version.
			if d.Version != "" && d.Version != "(devel)" {
				all[module{d.Path, d.Version}] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b module) int { return strings.Compare(a.path+a.version, b.path+b.version) }), ctx.Err()
}

// licenceFile matches the names of files with licences and notices.
var licenceFile = regexp.MustCompile(`(?i)^(licen[cs]e|copying|notice|copyright|unlicense)([-_.].*)?$`)

// licences returns the texts that an image must have: Tenon's licences, and the
// licences and notices of each module and of Go. It returns an error if a module
// has none.
func (o order) licences(ctx context.Context, p product, modules []module) ([]file, error) {
	own, err := os.ReadFile(filepath.Join(o.root, "LICENSE"))
	if err != nil {
		return nil, err
	}
	texts := []file{{"licenses/LICENSE", own}}
	if p.bpf {
		gpl, err := os.ReadFile(filepath.Join(o.root, "bpf", "COPYING"))
		if err != nil {
			return nil, err
		}
		texts = append(texts, file{"licenses/COPYING", gpl})
	}
	goroot, err := o.ask(ctx, p, "env", "GOROOT")
	if err != nil {
		return nil, err
	}
	var all bytes.Buffer
	if err := appendLicences(&all, "Go and its standard library", strings.TrimSpace(goroot)); err != nil {
		return nil, err
	}
	args := []string{"mod", "download", "-json"}
	for _, m := range modules {
		args = append(args, m.path+"@"+m.version)
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
		if err := appendLicences(&all, m.Path+" "+m.Version, m.Dir); err != nil {
			return nil, err
		}
	}
	return append(texts, file{"licenses/THIRD-PARTY", all.Bytes()}), nil
}

// appendLicences appends the licences and notices in a directory. what names their
// subject.
func appendLicences(to *bytes.Buffer, what, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("find the licence of %s: %w", what, err)
	}
	found := false
	for _, e := range entries {
		if e.IsDir() || !licenceFile.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return fmt.Errorf("read the licence of %s: %w", what, err)
		}
		fmt.Fprintf(to, "==== %s: %s\n\n%s\n", what, e.Name(), text)
		found = true
	}
	if !found {
		return fmt.Errorf("find the licence of %s: no file in %s has one", what, dir)
	}
	return nil
}

// ask runs the go command in the folder of an image's module.
func (o order) ask(ctx context.Context, p product, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Stderr = filepath.Join(o.root, p.module), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w", strings.Join(args[:min(len(args), 3)], " "), err)
	}
	return string(out), nil
}

// The parts of an SPDX 2.3 document that writeSBOM uses (spdx.github.io/spdx-spec).
type (
	spdxDocument struct {
		Version   string       `json:"spdxVersion"`
		Licence   string       `json:"dataLicense"`
		ID        string       `json:"SPDXID"`
		Name      string       `json:"name"`
		Namespace string       `json:"documentNamespace"`
		Creation  spdxCreation `json:"creationInfo"`
		Packages  []spdxPart   `json:"packages"`
		Relations []spdxLink   `json:"relationships"`
	}
	spdxCreation struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	}
	spdxPart struct {
		Name      string    `json:"name"`
		ID        string    `json:"SPDXID"`
		Version   string    `json:"versionInfo"`
		Download  string    `json:"downloadLocation"`
		Analyzed  bool      `json:"filesAnalyzed"`
		Concluded string    `json:"licenseConcluded"`
		Declared  string    `json:"licenseDeclared"`
		Copyright string    `json:"copyrightText"`
		Refs      []spdxRef `json:"externalRefs,omitempty"`
	}
	spdxRef struct {
		Category string `json:"referenceCategory"`
		Type     string `json:"referenceType"`
		Locator  string `json:"referenceLocator"`
	}
	spdxLink struct {
		From string `json:"spdxElementId"`
		Kind string `json:"relationshipType"`
		To   string `json:"relatedSpdxElement"`
	}
)

// writeSBOM writes the list of the modules of an image, as NAME-ARCH.spdx.json
// beside the image. The same programs give the same list.
func (o order) writeSBOM(p product, arch string, modules []module, programs []file) error {
	const none = "NOASSERTION"
	sum := sha256.New()
	for _, f := range programs {
		fmt.Fprintf(sum, "%s %x\n", f.name, sha256.Sum256(f.data))
	}
	name := p.name + "-" + arch
	d := spdxDocument{
		Version: "SPDX-2.3", Licence: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace: fmt.Sprintf("%s/spdx/%s-%x", source, name, sum.Sum(nil)),
		Creation:  spdxCreation{o.created.Format(time.RFC3339), []string{"Tool: deploy/image"}},
		Packages:  []spdxPart{{Name: p.name, ID: "SPDXRef-image", Version: o.version, Download: none, Concluded: p.licence(), Declared: p.licence(), Copyright: none}},
		Relations: []spdxLink{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-image"}},
	}
	for i, m := range modules {
		id := fmt.Sprintf("SPDXRef-module-%d", i+1)
		d.Packages = append(d.Packages, spdxPart{
			Name: m.path, ID: id, Version: m.version, Download: none, Concluded: none, Declared: none, Copyright: none,
			Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.path + "@" + m.version}},
		})
		d.Relations = append(d.Relations, spdxLink{"SPDXRef-image", "CONTAINS", id})
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.out, name+".spdx.json"), append(text, '\n'), 0o644)
}
