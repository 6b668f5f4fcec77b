package outlook

import (
	"fmt"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/unit"
)

// TestThePageOfKeptPromisesNamesTheNodes has 30 nodes that kept too few promises for 6
// hours with 90 %, and one that kept them.
func TestThePageOfKeptPromisesNamesTheNodes(t *testing.T) {
	var all []prospect.Outlook
	for i := range 31 {
		kept := int64(700)
		if i == 30 {
			kept = 950
		}
		all = append(all, prospect.Outlook{Name: fmt.Sprintf("node-%d", i), Seen: 60, To: 60, Promises: []promise.Promise{{
			Hours: 6, Percent: 90, CPU: promise.Amount[unit.MilliCPU]{Code: promise.Known, Value: 1000, Judged: 1000, Kept: kept},
			Memory: promise.Amount[unit.Bytes]{Code: promise.TooFew},
		}}})
	}
	text := func(all []prospect.Outlook) string {
		var b strings.Builder
		if err := (KeptView{Of: "node a", Fleet: prospect.Sum(all), Shortfalls: prospect.Shortfalls(all)}).Page().WriteText(&b); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	page := text(all)
	for _, want := range []string{"31000 promises have ended", "30 nodes kept a kind of promise clearly less often than said", "CPU for 6 h with 90%", "less often", "70%", "And 10 more"} {
		if !strings.Contains(page, want) {
			t.Errorf("%q is missing in\n%s", want, page)
		}
	}
	if strings.Contains(page, "node-30") {
		t.Errorf("a node that kept its promises is named:\n%s", page)
	}
	if page := text(all[30:]); !strings.Contains(page, "No single node") {
		t.Errorf("%s", page)
	}
	if page := text([]prospect.Outlook{{Name: "new"}}); !strings.Contains(page, "no promise has ended yet") {
		t.Errorf("%s", page)
	}
}
