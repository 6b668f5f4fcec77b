package outlook

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/lab/textlayout"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// fleet makes nodes of two pools with batch work at night. memory of a node is measured if
// it is wanted.
func fleet(nodes, days int, memory bool) (all []prospect.Outlook) {
	for i := range nodes {
		rnd := rand.New(rand.NewPCG(uint64(i), 3))
		n := prospect.Node{Name: fmt.Sprintf("node-%d", i), Pool: fmt.Sprint(i % 2), CPU: 32_000, Memory: 128 << 30, Step: 5, Start: 20_500 * 24 * 60}
		for s := range days * 24 * 12 {
			hour := float64(s) / 12
			used := 9000 + 5000*math.Sin(2*math.Pi*(hour-9)/24) + 400*rnd.NormFloat64() + 300*float64(i%5)
			batch := 0.0
			if int(hour)%24 < 6 {
				batch = 4000
			}
			n.UsedCPU = append(n.UsedCPU, int64(used+batch))
			n.BatchCPU = append(n.BatchCPU, int64(batch))
			n.RoomCPU = append(n.RoomCPU, int64(max(20_000-used-batch, 0)))
			if memory {
				n.UsedMemory = append(n.UsedMemory, 40_000+int64(3000*math.Sin(2*math.Pi*hour/24))+int64(2000*(i%7)))
				n.RoomMemory = append(n.RoomMemory, 85_000-n.UsedMemory[s])
			}
		}
		n.Hurt = []prospect.Hurt{
			{Service: "shop/checkout-7d9c", By: "logging/" + strings.Repeat("fluentd-", 12) + fmt.Sprint(i%3), Minutes: 40, Lost: time.Duration(i) * time.Second},
			{Service: "ads/bidder", Minutes: 4, Lost: time.Minute},
		}
		all = append(all, prospect.Summarize(n))
	}
	return all
}

// TestPagesFitAndAreWhole prints pages of much, little and nothing.
func TestPagesFitAndAreWhole(t *testing.T) {
	half := fleet(3, 8, true)
	half[2].Hours[7] = prospect.Hour{}
	for name, all := range map[string][]prospect.Outlook{
		"many nodes": fleet(40, 15, true), "no memory": fleet(1, 8, false), "one day": fleet(2, 1, true), "an hour is missing": half,
		"nothing": nil, "a node without a minute": {prospect.Summarize(prospect.Node{Step: 1})},
	} {
		for _, price := range []node.Maybe[float64]{{}, node.Some(0.34)} {
			p := View{Of: "The nodes", Fleet: prospect.Sum(all), Price: price}.Page()
			var text, html bytes.Buffer
			if err := errors.Join(p.WriteText(&text), p.WriteHTML(&html)); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(text.String()) {
				if n := textlayout.Columns(strings.TrimSuffix(line, "\n")); n > textlayout.Width {
					t.Errorf("%s: %d columns: %s", name, n, line)
				}
			}
			if strings.Contains(text.String()+html.String(), "NaN") || strings.Contains(html.String(), "Inf") {
				t.Errorf("%s: a value is no number:\n%s", name, text.String())
			}
			checkPictures(t, name, html.Bytes())
			if file := os.Getenv("TENON_TEST_PAGE"); file != "" && name == "many nodes" {
				if err := errors.Join(os.WriteFile(file, html.Bytes(), 0o644), os.WriteFile(file+".txt", text.Bytes(), 0o644)); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// checkPictures checks that pictures are well formed, and that all that they draw lies
// within them.
func checkPictures(t *testing.T, name string, html []byte) {
	t.Helper()
	for _, picture := range regexp.MustCompile(`(?s)<svg viewBox.*?</svg>`).FindAll(html, -1) {
		d := xml.NewDecoder(bytes.NewReader(picture))
		var width, height float64
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v in %s", name, err, picture)
			}
			start, is := token.(xml.StartElement)
			if !is {
				continue
			}
			at := map[string]float64{}
			for _, a := range start.Attr {
				if a.Name.Local == "viewBox" {
					if _, err := fmt.Sscanf(a.Value, "0 0 %g %g", &width, &height); err != nil {
						t.Fatal(err)
					}
				}
				var v float64
				if _, err := fmt.Sscanf(a.Value, "%g", &v); err == nil {
					at[a.Name.Local] = v
				}
			}
			if at["x"] < 0 || at["y"] < 0 || at["width"] < 0 || at["height"] < 0 || at["x"]+at["width"] > width || at["y"]+at["height"] > height {
				t.Errorf("%s: %v lies outside of %g × %g", name, start, width, height)
			}
		}
	}
}

// TestWordsFollowTheCodes checks the sentences that a reader must not miss.
func TestWordsFollowTheCodes(t *testing.T) {
	words := func(v View) string {
		var text bytes.Buffer
		if err := v.Page().WriteText(&text); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(text.String()), " ")
	}
	many := prospect.Sum(fleet(6, 8, true))
	for code, want := range map[prospect.SavingCode]string{
		prospect.NoBatchWork: "nothing is saved. What lacks is batch work, not room", prospect.BatchUnknown: "It is not known which work could be batch work",
		prospect.Unmeasured: "the room or the use of its nodes was not measured",
		prospect.NoRoom:     "There was no room for it", prospect.OneNode: "cannot be given back",
	} {
		f := many
		f.Saving.Code = code
		if text := words(View{Of: "x", Fleet: f, Price: node.Some(0.5)}); !strings.Contains(text, want) || strings.Contains(text, "an hour, at your price") {
			t.Errorf("%s: %s", code, text)
		}
	}
	f := many
	f.Saving = prospect.Saving{Code: prospect.Counted, Nodes: 6, Work: 1000, Low: prospect.Moved{CPU: 500, Nodes: 2}, High: prospect.Moved{CPU: 1000, Nodes: 4}}
	if text := words(View{Of: "x", Fleet: f, Price: node.Some(0.5)}); !strings.Contains(text, "2 to 4 nodes fewer") || !strings.Contains(text, "1.00 to 2.00 an hour, at your price of 0.50") {
		t.Error(text)
	}
	if text := words(View{Of: "x", Fleet: f}); !strings.Contains(text, "2 to 4 nodes fewer") || strings.Contains(text, "an hour, at") {
		t.Errorf("without a price: %s", text)
	}
	for code := range gapWords {
		f.Gaps = []prospect.Gap{{Code: code, Nodes: 3}}
		if text := words(View{Of: "x", Fleet: f, Hints: map[prospect.GapCode]string{code: "Do this."}}); !strings.Contains(text, "3 of 6 nodes: ") || !strings.Contains(text, "Do this.") {
			t.Errorf("%s: %s", code, text)
		}
	}
	for nodes, want := range map[int]string{1: "x has no measured minute.", 3: "x have no measured minute."} {
		if text := words(View{Of: "x", Fleet: prospect.Fleet{Nodes: nodes}}); !strings.Contains(text, want) {
			t.Errorf("%d nodes: %s", nodes, text)
		}
	}
	if !strings.Contains(words(View{Of: "x", Fleet: many}), "do not have little room at the same time") {
		t.Error("the page does not say what a sum of low values is")
	}
}

// TestAYoungNodeHasNoTableOfPromises also checks how its time is printed.
func TestAYoungNodeHasNoTableOfPromises(t *testing.T) {
	for minutes, want := range map[int64]string{1: "1 minute", 90: "90 minutes", 150: "3 hours", 47 * 60: "47 hours", 48 * 60: "2 days", 10_000: "7 days"} {
		if got := days(minutes); got != want {
			t.Errorf("%d minutes: %s, want %s", minutes, got, want)
		}
	}
	young, old := prospect.Sum(fleet(1, 1, true)), prospect.Sum(fleet(1, 6, true))
	if s := promisesSection(young); s.Title != "" || len(young.CPU.Promised) == 0 {
		t.Errorf("after a day: %+v", s)
	}
	if s := promisesSection(old); len(s.Table.Rows) != len(old.CPU.Promised) {
		t.Errorf("after six days: %+v", s)
	}
}

// TestASumOfPromisesSaysOfHowManyNodes has two nodes that promise CPU for an hour, one of
// them with 95 % only, and one that does not yet.
func TestASumOfPromisesSaysOfHowManyNodes(t *testing.T) {
	one := func(percent unit.Percent, code promise.Code) promise.Promise {
		return promise.Promise{Hours: 1, Percent: percent, CPU: promise.Amount[unit.MilliCPU]{Code: code, Value: 1000}, Memory: promise.Amount[unit.Bytes]{Code: promise.Known, Value: 1 << 30}}
	}
	var all []prospect.Outlook
	for _, codes := range [][3]promise.Code{{promise.Known, promise.Known, promise.Known}, {promise.TooFew, promise.TooFew, promise.Known}, {promise.TooFew, promise.TooFew, promise.TooFew}} {
		all = append(all, prospect.Outlook{Promises: []promise.Promise{one(80, codes[0]), one(90, codes[1]), one(95, codes[2])}})
	}
	const want = "lack the others: CPUs for 1 h from 1 of 3 nodes, CPUs for 1 h from 2 of 3 nodes."
	if items := promisesSection(prospect.Sum(all)).Items; len(items) != 1 || !strings.HasSuffix(items[0], want) {
		t.Errorf("%q, want %q", items, want)
	}
	if items := promisesSection(prospect.Sum(all[:1])).Items; len(items) > 0 {
		t.Errorf("a single node that promises all: %q", items)
	}
}

func TestFewFailuresAreNotNone(t *testing.T) {
	for want, of := range map[string]prospect.Trials{"-": {}, "0": {Jobs: 9}, "< 0.1%": {Jobs: 5000, Failed: 1}, "0.1%": {Jobs: 1000, Failed: 1}, "100.0%": {Jobs: 2, Failed: 2}} {
		if got := share(of); got != want {
			t.Errorf("%+v: %s, want %s", of, got, want)
		}
	}
	if got := risk(prospect.Trials{Jobs: 1000, Free: 6}); got != "0 (0-35)" {
		t.Errorf("none of a week: %s", got)
	}
	if got := risk(prospect.Trials{Jobs: 1000, Failed: 100, Variance: 400, Free: 6}); got != "10.0% (5.1-15)" {
		t.Errorf("a tenth: %s", got)
	}
}
