package cpumap

import (
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
)

// TestAMapListsThePodsThatGotNoCPUs has a pod to which the node gave none.
func TestAMapListsThePodsThatGotNoCPUs(t *testing.T) {
	n := Node{Topology: machine(1, 1, 2, 1), Made: drawn, Refused: []Refused{{Pod: "shop/a", Policy: cpus.Shared, Why: "has <no> room"}, {Pod: "shop/b", Policy: cpus.Exclusive}}}
	m := New(n, []Owner{own("shop/c", "1")})
	for name, x := range map[string]struct{ text, want string }{
		"text":    {m.Text(), "\nA  exclusive  shop/c  1 CPU: 1\n-  shared     shop/a  it has <no> room\n-  exclusive  shop/b  the node gave it none\n.  open"},
		"picture": {joined(t, m), "shop/ait has <no> room"},
		"page":    {m.HTML(), "<em>shared</em> <b>shop/a</b> it has &lt;no&gt; room"},
	} {
		if !strings.Contains(x.text, x.want) {
			t.Errorf("the %s: want %q in\n%s", name, x.want, x.text)
		}
	}
}
