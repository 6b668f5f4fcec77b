package pack

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

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

// WriteSBOM writes the list of the modules of a build into the folder out, as
// NAME-ARCH.spdx.json for an image and NAME-OS-ARCH.spdx.json for an archive. The same
// programs give the same list.
func (o Order) WriteSBOM(b Build, out string) error {
	const none = "NOASSERTION"
	sum := sha256.New()
	for _, f := range b.Programs {
		fmt.Fprintf(sum, "%s %x\n", f.Name, sha256.Sum256(f.Data))
	}
	p, name := b.Product, b.Product.Name+"-"+b.Platform.String()
	if p.User != "" {
		name = p.Name + "-" + b.Platform.Arch
	}
	d := spdxDocument{
		Version: "SPDX-2.3", Licence: "CC0-1.0", ID: "SPDXRef-DOCUMENT", Name: name,
		Namespace: fmt.Sprintf("%s/spdx/%s-%x", Source, name, sum.Sum(nil)),
		Creation:  spdxCreation{o.Created.Format(time.RFC3339), []string{"Tool: deploy/pack"}},
		Packages:  []spdxPart{{Name: p.Name, ID: "SPDXRef-product", Version: o.Version, Download: none, Concluded: p.licence(), Declared: p.licence(), Copyright: none}},
		Relations: []spdxLink{{"SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-product"}},
	}
	for i, m := range b.Modules {
		id := fmt.Sprintf("SPDXRef-module-%d", i+1)
		d.Packages = append(d.Packages, spdxPart{
			Name: m.Path, ID: id, Version: m.Version, Download: none, Concluded: none, Declared: m.Licence, Copyright: none,
			Refs: []spdxRef{{"PACKAGE-MANAGER", "purl", "pkg:golang/" + m.Path + "@" + strings.TrimPrefix(m.Version, "go")}},
		})
		d.Relations = append(d.Relations, spdxLink{"SPDXRef-product", "CONTAINS", id})
	}
	text, err := json.MarshalIndent(d, "", " ")
	if err != nil {
		return err
	}
	return WriteFile(filepath.Join(out, name+".spdx.json"), func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}
