// Package published compares the figures of the five published systems with the
// figures of Tenon's own experiments, and makes the tables of docs/published.md.
package published

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab"
	"tenon.sh/tenon/internal/lab/published"
	"tenon.sh/tenon/test/typed"
)

var update = flag.Bool("update", false, "write the tables into docs/published.md")

const (
	root        = "../../"
	thePage     = root + "docs/published.md"
	experiments = root + "docs/experiments/"
)

// TestTablesStandBesideEachOther makes each table of the data, and compares it
// with the page. A cell of ours is computed from the raw data of an experiment, or is
// the reason why there is none.
func TestTablesStandBesideEachOther(t *testing.T) {
	made := map[string]string{}
	for _, tab := range published.Read().Tables {
		g, err := tab.Published(func(experiment string) (any, error) { return rebuild(t, experiment), nil })
		if err != nil {
			t.Error(err)
		}
		made[tab.Name] = g.Markdown(func(experiment string) string { return "experiments/" + experiment + "/README.md" })
	}
	compareTables(t, thePage, made)
}

// compareTables compares tables with those of a page, or writes them. In the page
// they stand between two comments.
func compareTables(t *testing.T, file string, made map[string]string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for name, table := range made {
		begin, end := "<!-- table "+name+" -->\n\n", "\n<!-- end -->"
		before, rest, found := strings.Cut(page, begin)
		shown, after, closed := strings.Cut(rest, end)
		if !found || !closed || strings.Contains(after, begin) {
			t.Errorf("%s has no table %s, or two", file, name)
			continue
		}
		if shown != table && !*update {
			t.Errorf("table %s of %s is not that of the data; go test ./test/published -update writes it:\n%s", name, file, table)
		}
		page = before + begin + table + end + after
	}
	if n := strings.Count(page, "<!-- table "); n != len(made) {
		t.Errorf("%s has %d tables, want %d", file, n, len(made))
	}
	if *update && !t.Failed() {
		if err := os.WriteFile(file, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func readResult(t *testing.T, experiment string) any {
	t.Helper()
	text, err := os.ReadFile(experiments + experiment + "/result.json")
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, text)
}

// rebuilt has the results of rebuild.
var rebuilt = map[string]any{}

// rebuild computes the result of an experiment from its raw data.
func rebuild(t *testing.T, experiment string) any {
	t.Helper()
	if rebuilt[experiment] == nil {
		kind, _ := published.Lookup(readResult(t, experiment), "experiment.kind").(string)
		found, err := lab.Kinds[kind](filepath.Join(experiments, experiment))
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(found.Result())
		if err != nil {
			t.Fatal(err)
		}
		rebuilt[experiment] = decode(t, text)
	}
	return rebuilt[experiment]
}

// tableNamed returns a table of the data.
func tableNamed(t *testing.T, name string) published.Table {
	t.Helper()
	tables := published.Read().Tables
	i := slices.IndexFunc(tables, func(tab published.Table) bool { return tab.Name == name })
	if i < 0 {
		t.Fatalf("the data have no table %s", name)
	}
	return tables[i]
}

func value(t *testing.T, n *json.Number) float64 {
	t.Helper()
	f, err := n.Float64()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func percent(f float64, digits int) string {
	return strings.Replace(fmt.Sprintf("%+.*f", digits, f), "-", "−", 1)
}

func decode(t *testing.T, text []byte) any {
	t.Helper()
	v, err := published.Decode(text)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestPrintedChangesFollowFromTheFigures computes the changes that the documents
// print, rounded or cut to as many digits. The data mark those that do not
// follow, and the page names them.
func TestPrintedChangesFollowFromTheFigures(t *testing.T) {
	checked := 0
	for _, tab := range published.Read().Tables {
		for _, r := range tab.Rows {
			for j, p := range r.Printed {
				change, is := r.ChangeOf(j)
				if !is || p == nil {
					continue
				}
				checked++
				_, decimals, _ := strings.Cut(p.String(), ".")
				scale := math.Pow10(len(decimals))
				printed := value(t, p) * scale
				follows := math.Abs(printed-math.Round(change*scale)) < 1e-6 || math.Abs(printed-math.Trunc(change*scale)) < 1e-6
				if follows == slices.Contains(r.Odd, j) {
					t.Errorf("%s, %s, %s: the document prints %v %%, its figures give %.2f %%, and the mark odd is %v", tab.Name, r.Fact, tab.Columns[j], p, change, !follows)
				}
			}
		}
	}
	if checked < 10 {
		t.Errorf("only %d changes were checked", checked)
	}
}

// TestPublishedResultsHaveTheSameFigures compares the cells with the committed
// result.json of each experiment. Only intervals may differ: the present version
// makes some of them wider.
func TestPublishedResultsHaveTheSameFigures(t *testing.T) {
	figures := func(cells []string) (without []string) {
		for _, c := range cells {
			c, _, _ = strings.Cut(c, ";")
			without = append(without, c)
		}
		return without
	}
	for _, tab := range published.Read().Tables {
		for _, from := range tab.Runs {
			for _, r := range tab.Rows {
				if r.Ours == "" {
					continue
				}
				then, err1 := r.Cells(from, readResult(t, from.Experiment))
				now, err2 := r.Cells(from, rebuild(t, from.Experiment))
				want, got := figures(then), figures(now)
				if !slices.Equal(want, got) || err1 != nil || err2 != nil {
					t.Errorf("%s, %s: result.json gives %q, the raw data %q: %v, %v", from.Experiment, r.Fact, want, got, err1, err2)
				}
			}
		}
	}
}

// TestThePageNamesTheDocuments checks titles, addresses, and the places from
// which figures come.
func TestThePageNamesTheDocuments(t *testing.T) {
	text, err := os.ReadFile(thePage)
	if err != nil {
		t.Fatal(err)
	}
	d, known := published.Read(), map[string]bool{}
	for _, doc := range d.Documents {
		known[doc.Name] = true
		if !bytes.Contains(text, []byte("["+doc.Title+"]("+doc.Address+")")) {
			t.Errorf("the page does not link %s", doc.Title)
		}
	}
	if len(known) != 5 {
		t.Errorf("%d documents, want five", len(known))
	}
	for _, tab := range d.Tables {
		if !known[tab.Document] {
			t.Errorf("table %s is of the document %q, which is none of the five", tab.Name, tab.Document)
		}
	}
}

// TestTheNamedTestsExist looks for each test that the pages name as a proof.
func TestTheNamedTestsExist(t *testing.T) {
	tests, err := typed.Tests(root)
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, page := range []string{thePage, authorsPage, kernelsPage, examples + "README.md"} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("`(Test[\\w/-]+)`").FindAllSubmatch(text, -1) {
			named++
			if !tests[string(m[1])] {
				t.Errorf("%s names the test %s, which does not exist", page, m[1])
			}
		}
	}
	if named < 20 {
		t.Errorf("the pages name %d tests only", named)
	}
}
