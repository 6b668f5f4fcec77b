package plugin

import (
	"fmt"
	"math/rand/v2"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"tenon.sh/tenon/internal/decide/place"
)

// TestANodeIsFoundByItsObject lets nodes come, change their object and go, and
// compares each lookup with one by name.
func TestANodeIsFoundByItsObject(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 6))
	x := newIndex(map[string]*slot{})
	views, objects := map[string]*place.View{}, map[string]*corev1.Node{}
	for range 20_000 {
		name := fmt.Sprint("node-", rnd.IntN(300))
		switch rnd.IntN(10) {
		case 0:
			x = x.without(name)
			delete(views, name)
		case 1:
			objects[name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
		case 2, 3:
			v := place.New().View(name)
			if s := x.slots[name]; s != nil {
				s.view.Store(v)
			} else {
				x = x.with(name, v)
			}
			views[name] = v
		default:
			o := objects[name]
			if o == nil {
				continue
			}
			want := views[name]
			if want == nil {
				want = noView
			}
			if got := x.of(o); got != want || x.named(name) != want {
				t.Fatalf("%s: another view", name)
			}
		}
	}
}
