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
	"strconv"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab"
	"tenon.sh/tenon/test/typed"
)

var update = flag.Bool("update", false, "write the tables into docs/published.md")

const (
	root        = "../../"
	thePage     = root + "docs/published.md"
	experiments = root + "docs/experiments/"
)

// A dataset has the documents, and the figures that they print.
type dataset struct {
	Documents []document `json:"documents"`
	Tables    []table    `json:"tables"`
}

type document struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	By      string `json:"by"`
	Address string `json:"address"`
}

// A table compares figures of one place in a document with figures of runs.
type table struct {
	Name     string   `json:"name"`
	Document string   `json:"document"`
	Where    string   `json:"where"` // heading of the place in the document
	Columns  []string `json:"columns"`
	Down     bool     `json:"down"` // published figures relate to the first one of their column
	Rows     []row    `json:"rows"`
	Runs     []run    `json:"runs"`
}

// A row is one figure. Its paths lead to a value in result.json, and {} in a path
// stands for the name of the column in the run.
type row struct {
	Fact    string         `json:"fact"`
	Unit    string         `json:"unit"`
	Theirs  []*json.Number `json:"theirs"`  // as printed; null: not printed
	Printed []*json.Number `json:"printed"` // changes in per cent as printed
	Odd     []int          `json:"odd"`     // columns whose printed change does not follow from the figures
	Base    int            `json:"base"`    // column to which published changes relate
	Ours    string         `json:"ours"`
	Of      string         `json:"of"`      // value by which Ours is divided
	Times   float64        `json:"times"`   // factor for Ours; 0 means 1
	Digits  int            `json:"digits"`  // digits of Ours after the point
	Change  string         `json:"change"`  // ratio with its interval
	Ratio   string         `json:"ratio"`   // ratio without an interval
	Refused string         `json:"refused"` // value that is false if the machine is too small
	Missing string         `json:"missing"` // why a run has no such value
	Absent  string         `json:"absent"`  // why there is no run
}

type run struct {
	Label      string   `json:"label"`
	Experiment string   `json:"experiment"`
	Columns    []string `json:"columns"`
}

func readDataset(t *testing.T) (d dataset) {
	t.Helper()
	text, err := os.ReadFile("figures.json")
	if err != nil {
		t.Fatal(err)
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	in.DisallowUnknownFields()
	if err := in.Decode(&d); err != nil {
		t.Fatal(err)
	}
	return d
}

// TestTablesStandBesideEachOther makes each table of the data, and compares it
// with the page. A cell of ours is computed from the raw data of an experiment, or is
// the reason why there is none.
func TestTablesStandBesideEachOther(t *testing.T) {
	made := map[string]string{}
	for _, tab := range readDataset(t).Tables {
		made[tab.Name] = tab.render(t)
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

// render returns the table in Markdown.
func (tab table) render(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	if tab.Where != "" {
		b.WriteString("*In the document:* " + tab.Where + ".\n\n")
	}
	line := func(cells ...string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(append([]string{"figure", "from"}, tab.Columns...)...)
	line(slices.Repeat([]string{"---"}, 2+len(tab.Columns))...)
	for i, r := range tab.Rows {
		name := r.Fact
		if r.Unit != "" {
			name += " (" + r.Unit + ")"
		}
		if slices.ContainsFunc(r.Theirs, func(n *json.Number) bool { return n != nil }) {
			line(append([]string{name, "document"}, tab.theirs(t, i)...)...)
			name = ""
		}
		switch {
		case r.Absent != "":
			line(append([]string{name, "here"}, slices.Repeat([]string{r.Absent}, len(tab.Columns))...)...)
		case r.Ours != "" || r.Refused != "":
			for _, from := range tab.Runs {
				result := rebuild(t, from.Experiment)
				label := fmt.Sprintf("[%s, %s](experiments/%s/README.md)", from.Label, from.Experiment[:len("2026-11-22")], from.Experiment)
				line(append([]string{name, label}, r.ours(t, from, result)...)...)
				name = ""
			}
		}
	}
	return b.String()
}

// theirs returns the published figures of row i, with their changes.
func (tab table) theirs(t *testing.T, i int) []string {
	t.Helper()
	r := tab.Rows[i]
	if len(r.Theirs) != len(tab.Columns) {
		t.Fatalf("%s, %s: %d figures in %d columns", tab.Name, r.Fact, len(r.Theirs), len(tab.Columns))
	}
	cells := make([]string, len(r.Theirs))
	for j, n := range r.Theirs {
		switch {
		case n == nil:
			cells[j] = "–"
		case tab.Down:
			cells[j] = n.String()
			if first := tab.firstOf(j); first != n {
				cells[j] += fmt.Sprintf(" (×%.2f)", value(t, n)/value(t, first))
			}
		default:
			cells[j] = n.String()
			if change, is := r.changeOf(t, j); is && j != r.Base && r.Change != "" {
				cells[j] += " (" + percent(change, 1) + " %)"
			}
		}
	}
	return cells
}

// firstOf returns the first published figure of a column.
func (tab table) firstOf(column int) *json.Number {
	for _, r := range tab.Rows {
		if r.Theirs[column] != nil {
			return r.Theirs[column]
		}
	}
	return nil
}

// changeOf returns the change of a published figure in per cent, if the figure and
// that to which it relates are printed.
func (r row) changeOf(t *testing.T, column int) (float64, bool) {
	t.Helper()
	if r.Theirs[column] == nil || r.Theirs[r.Base] == nil {
		return 0, false
	}
	return 100 * (value(t, r.Theirs[column])/value(t, r.Theirs[r.Base]) - 1), true
}

// ours returns the figures of one run.
func (r row) ours(t *testing.T, from run, result any) []string {
	t.Helper()
	cells := make([]string, len(from.Columns))
	if r.Refused != "" {
		if speaks, _ := lookup(result, r.Refused).(bool); !speaks {
			return slices.Repeat([]string{"refused"}, len(cells))
		}
	}
	for i, column := range from.Columns {
		at := func(path string) any { return lookup(result, strings.ReplaceAll(path, "{}", column)) }
		v, is := at(r.Ours).(json.Number)
		if !is {
			if cells[i] = r.Missing; r.Missing == "" {
				t.Errorf("%s has no %s for %s, and the data give no reason", from.Experiment, r.Ours, column)
			}
			continue
		}
		f := value(t, &v)
		if r.Times != 0 {
			f *= r.Times
		}
		if whole, is := at(r.Of).(json.Number); is {
			f /= value(t, &whole)
		} else if r.Of != "" {
			t.Errorf("%s has no %s", from.Experiment, r.Of)
		}
		cells[i] = strconv.FormatFloat(f, 'f', r.Digits, 64)
		if r.Ratio != "" {
			ratio, is := at(r.Ratio).(json.Number)
			if !is {
				t.Errorf("%s has no %s for %s", from.Experiment, r.Ratio, column)
				continue
			}
			cells[i] += fmt.Sprintf(" (×%.2f)", value(t, &ratio))
		}
		if i > 0 && r.Change != "" {
			cells[i] += " (" + interval(t, at(r.Change)) + ")"
		}
	}
	return cells
}

// interval returns a ratio with its 95 % interval: as a change in per cent, or from
// a factor of 2 on as a multiple.
func interval(t *testing.T, ratio any) string {
	t.Helper()
	at := func(key string) float64 {
		n, is := lookup(ratio, key).(json.Number)
		if !is {
			t.Errorf("a ratio has no %s", key)
			return math.NaN()
		}
		return value(t, &n)
	}
	estimate, low, high := at("estimate"), at("low"), at("high")
	if estimate >= 2 {
		return fmt.Sprintf("×%.1f; %.1f to %.1f", estimate, low, high)
	}
	return percent(100*(estimate-1), 1) + " %; " + percent(100*(low-1), 1) + " to " + percent(100*(high-1), 1)
}

func percent(f float64, digits int) string {
	return strings.Replace(fmt.Sprintf("%+.*f", digits, f), "-", "−", 1)
}

func value(t *testing.T, n *json.Number) float64 {
	t.Helper()
	f, err := n.Float64()
	if err != nil {
		t.Fatal(err)
	}
	return f
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
		kind, _ := lookup(readResult(t, experiment), "experiment.kind").(string)
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

func decode(t *testing.T, text []byte) (v any) {
	t.Helper()
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	if err := in.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

var part = regexp.MustCompile(`([^.[]+)(?:\[([^]]*)\])?`)

// lookup follows a path such as options[strategy=quota,jobs=2].penalty: keys, and
// the one element of an array whose keys have these values. The value "" stands
// for a key that is absent. It returns nil if there is no such value.
func lookup(v any, path string) any {
	for _, m := range part.FindAllStringSubmatch(path, -1) {
		object, is := v.(map[string]any)
		if !is {
			return nil
		}
		v = object[m[1]]
		if m[2] == "" {
			continue
		}
		list, is := v.([]any)
		if !is {
			return nil
		}
		list = slices.DeleteFunc(slices.Clone(list), func(e any) bool {
			for want := range strings.SplitSeq(m[2], ",") {
				key, text, _ := strings.Cut(want, "=")
				got := ""
				if have := lookup(e, key); have != nil {
					got = fmt.Sprint(have)
				}
				if got != text {
					return true
				}
			}
			return false
		})
		if len(list) != 1 {
			return nil
		}
		v = list[0]
	}
	return v
}

// TestPrintedChangesFollowFromTheFigures computes the changes that the documents
// print, rounded or cut to as many digits. The data mark those that do not
// follow, and the page names them.
func TestPrintedChangesFollowFromTheFigures(t *testing.T) {
	checked := 0
	for _, tab := range readDataset(t).Tables {
		for _, r := range tab.Rows {
			for j, p := range r.Printed {
				change, is := r.changeOf(t, j)
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
	for _, tab := range readDataset(t).Tables {
		for _, from := range tab.Runs {
			published := readResult(t, from.Experiment)
			for _, r := range tab.Rows {
				if r.Ours == "" {
					continue
				}
				want, got := figures(r.ours(t, from, published)), figures(r.ours(t, from, rebuild(t, from.Experiment)))
				if !slices.Equal(want, got) {
					t.Errorf("%s, %s: result.json gives %q, the raw data %q", from.Experiment, r.Fact, want, got)
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
	d, known := readDataset(t), map[string]bool{}
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
