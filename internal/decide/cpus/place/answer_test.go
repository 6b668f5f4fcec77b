package place

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/unit"
)

// TestEveryReasonIsAnAnswer compares the list reasons with the constants in the
// sources.
func TestEveryReasonIsAnAnswer(t *testing.T) {
	var all []Reason
	for _, pattern := range []string{"*.go", "../pick/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			f, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			ast.Inspect(f, func(n ast.Node) bool {
				v, is := n.(*ast.ValueSpec)
				if !is || len(v.Values) != 1 {
					return true
				}
				kind, named := v.Type.(*ast.Ident)
				text, literal := v.Values[0].(*ast.BasicLit)
				if named && literal && kind.Name == "Reason" {
					value, err := strconv.Unquote(text.Value)
					if err != nil {
						t.Fatal(err)
					}
					all = append(all, Reason(value))
				}
				return true
			})
		}
	}
	if !slices.Contains(all, pick.Fits) || !slices.Contains(all, NotHere) {
		t.Fatalf("the sources have %q", all)
	}
	for _, why := range all {
		if why != pick.Fits && !slices.Contains(reasons[:], why) {
			t.Errorf("%q is not among the answers", why)
		}
	}
	if len(reasons) != len(all)-1 || len(reasons) > 1<<7 {
		t.Errorf("%d answers for %d reasons", len(reasons), len(all)-1)
	}
}

// anyDemand returns a random demand. It may be one that no node can meet.
func anyDemand(rnd *rand.Rand) Demand {
	d := Demand{Claim: pick.Claim{
		Grade: pick.Grade(1 + rnd.IntN(3)), CPUs: rnd.IntN(12), Bind: pick.Bind(rnd.IntN(5)), Within: pick.Level(rnd.IntN(4)), Fewest: rnd.IntN(4) == 0,
	}}
	if d.Grade != pick.Own {
		d.Request = unit.MilliCPU(rnd.IntN(9000))
	}
	return d
}

// TestAnAnswerIsRoomAndWorth adds and removes pods. It compares Answer with
// Room and Worth of the node.
func TestAnAnswerIsRoomAndWorth(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 8))
	fitted, refused := 0, map[Reason]int{}
	for range 200 {
		l := New()
		if rnd.IntN(20) > 0 {
			l.Learn("n", Report{Topology: machine(1+rnd.IntN(2), 1+rnd.IntN(3), 1+rnd.IntN(4), 1+rnd.IntN(2)), Keep: rnd.IntN(3)})
		}
		if rnd.IntN(20) == 0 {
			l.CloseNode("n", []Reason{Stale, OtherManager}[rnd.IntN(2)])
		}
		for i := range 40 {
			if rnd.IntN(3) == 0 {
				l.Release(UID(fmt.Sprint(rnd.IntN(i + 1))))
			} else {
				l.Reserve(Pod{UID(fmt.Sprint(i)), anyDemand(rnd)}, "n")
			}
			v, d := l.View("n"), anyDemand(rnd)
			a, why := v.Answer(&d), v.Room(&d)
			if a == 0 || a.Fits() != (why == pick.Fits) || a.Reason() != why {
				t.Fatalf("%+v: %q, and the answer %d says %q", d, why, a, a.Reason())
			}
			if why != pick.Fits {
				refused[why]++
				continue
			}
			fitted++
			if a.Worth() != v.Worth(&d) {
				t.Fatalf("%+v: worth %d, and the answer says %d", d, v.Worth(&d), a.Worth())
			}
		}
	}
	if fitted < 1000 || len(refused) < 9 {
		t.Errorf("too few cases: %d fit, refused %v", fitted, refused)
	}
}
