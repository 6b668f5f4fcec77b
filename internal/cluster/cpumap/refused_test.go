package cpumap

import (
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/pick"
)

// TestAMapListsThePodsThatGotNoCPUs has a pod to which the node gave none.
func TestAMapListsThePodsThatGotNoCPUs(t *testing.T) {
	n := Node{Topology: machine(1, 1, 2, 1), Refused: []Refused{{"shop/a", pick.Seated, "it has <no> room"}, {Name: "shop/b", Grade: pick.Own}}}
	m := New(n, []Owner{own("shop/c", "1")}, drawn)
	for name, x := range map[string]struct{ text, want string }{
		"text":    {m.Text(), "\nA  own    shop/c  1 CPU: 1\n-  seats  shop/a  it has <no> room\n-  own    shop/b  the node gave it none\n.  open"},
		"picture": {joined(t, m), "shop/ait has <no> room"},
		"page":    {m.HTML(), "<em>seats</em> <b>shop/a</b> it has &lt;no&gt; room"},
	} {
		if !strings.Contains(x.text, x.want) {
			t.Errorf("the %s: want %q in\n%s", name, x.want, x.text)
		}
	}
}
