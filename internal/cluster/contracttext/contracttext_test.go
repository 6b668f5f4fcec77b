package contracttext

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/cpus/pick"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// With these types, encoding/json writes and reads the same texts.
type (
	choiceJSON struct {
		Version    int                    `json:"v"`
		Topology   string                 `json:"topology"`
		Policy     string                 `json:"policy"`
		CPUs       unit.CPUSet            `json:"cpus"`
		Domain     unit.CPUSet            `json:"domain,omitzero"`
		Containers map[string]unit.CPUSet `json:"containers,omitempty"`
	}
	shareJSON struct {
		Node      int               `json:"node"`
		Resources map[string]string `json:"resources"`
	}
	statusJSON struct {
		CPUSet string      `json:"cpuset,omitempty"`
		Nodes  []shareJSON `json:"numaNodeResources,omitempty"`
	}
	elemsJSON struct {
		Elems map[string]struct{} `json:"elems"`
	}
	ackJSON map[string]map[string]elemsJSON
)

func jsonOf(c cpus.Choice) choiceJSON {
	return choiceJSON{Version: Version, Topology: c.Topology.String(), Policy: c.Policy.String(), CPUs: c.CPUs, Domain: c.Domain, Containers: c.Containers}
}

func text(t *testing.T, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// twoNodes returns a machine with 24 CPUs in two NUMA nodes.
func twoNodes() *pick.Map {
	var t node.Topology
	for c := range 24 {
		t.CPUs = append(t.CPUs, node.LogicalCPU{
			ID: unit.CPU(c), Core: node.CoreID(c / 2), L3: node.CacheID(c / 6), NUMA: node.NUMANode(c / 12), Socket: node.SocketID(c / 12),
		})
	}
	return pick.Compile(t)
}

// plainNames need no escapes; the other names do, or are not valid UTF-8.
var (
	plainNames = []string{"main", "side-car", "a.b", "", "it's", "~"}
	otherNames = []string{`"`, `\`, "<b>", "a&b", "é", "\x00", "\n", "\u2028", "\xff", "\x7f", `":"0"},"v":2}`}
)

func anySet(rnd *rand.Rand, most int) unit.CPUSet {
	var s unit.CPUSet
	for range rnd.IntN(12) {
		lo := rnd.IntN(most)
		for c := lo; c < min(most, lo+1+rnd.IntN(4)); c++ {
			s.Add(unit.CPU(c))
		}
	}
	return s
}

func anyChoice(rnd *rand.Rand, most int, names []string) cpus.Choice {
	c := cpus.Choice{Topology: cpus.Hash(rnd.Uint64() >> rnd.IntN(64)), Policy: cpus.Policy(1 + rnd.IntN(3)), CPUs: anySet(rnd, most)}
	if c.Policy != cpus.Exclusive {
		c.Domain = c.CPUs.Union(anySet(rnd, most))
	}
	if n := rnd.IntN(4); n > 0 {
		c.Containers = map[string]unit.CPUSet{}
		for range n {
			c.Containers[names[rnd.IntN(len(names))]] = anySet(rnd, most)
		}
	}
	return c
}

// TestAChoiceIsWrittenAsByEncodingJSON compares the bytes, and reads them
// again.
func TestAChoiceIsWrittenAsByEncodingJSON(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 5000 {
		names := plainNames
		if i%2 == 1 {
			names = slices.Concat(otherNames, plainNames)
		}
		c := anyChoice(rnd, []int{8, 256, unit.MaxCPUs}[rnd.IntN(3)], names)
		got := string(AppendChoice([]byte("before"), &c))
		if want := "before" + text(t, jsonOf(c)); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
		back, read := ReadChoice(got[len("before"):])
		escaped := false
		for name := range c.Containers {
			escaped = escaped || strings.ContainsFunc(name, func(r rune) bool { return strings.ContainsRune(`"\<>&`, r) || r < ' ' || r > '~' })
		}
		if read == escaped {
			t.Fatalf("%s: read %v", got, read)
		}
		if read && !reflect.DeepEqual(back, c) {
			t.Fatalf("%s: read as %+v, want %+v", got, back, c)
		}
	}
}

// TestAStatusIsWrittenAsByEncodingJSON compares the bytes.
func TestAStatusIsWrittenAsByEncodingJSON(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 1000 {
		own := anySet(rnd, 64)
		want := statusJSON{CPUSet: own.String()}
		var shares []Share
		for n := range rnd.IntN(4) {
			s := Share{NUMA: node.NUMANode(n * rnd.IntN(9)), CPU: []string{"", "1500m", "4"}[rnd.IntN(3)], Memory: []string{"", "500Mi"}[rnd.IntN(2)]}
			resources := map[string]string{"cpu": s.CPU, "memory": s.Memory}
			maps.DeleteFunc(resources, func(_, amount string) bool { return amount == "" })
			shares, want.Nodes = append(shares, s), append(want.Nodes, shareJSON{int(s.NUMA), resources})
		}
		if got, want := string(AppendStatus(nil, own, shares)), text(t, want); got != want {
			t.Fatalf("got  %s\nwant %s", got, want)
		}
	}
}

// TestACKsFormMeansTheSameAsByEncodingJSON compares the values, because
// encoding/json orders the numbers of CPUs as text.
func TestACKsFormMeansTheSameAsByEncodingJSON(t *testing.T) {
	rnd, m := rand.New(rand.NewPCG(5, 6)), twoNodes()
	all := slices.Concat(otherNames, plainNames)
	for range 2000 {
		c := anyChoice(rnd, 24, all)
		var names []string
		want := ackJSON{}
		for _, i := range rnd.Perm(len(all))[:rnd.IntN(4)] {
			names = append(names, all[i])
			set, has := c.Containers[all[i]]
			if !has {
				set = c.CPUs
			}
			of := map[string]elemsJSON{}
			for cpu := range set.All() {
				numa := strconv.Itoa(int(cpu) / 12)
				if of[numa].Elems == nil {
					of[numa] = elemsJSON{map[string]struct{}{}}
				}
				of[numa].Elems[strconv.Itoa(int(cpu))] = struct{}{}
			}
			want[all[i]] = of
		}
		var is, should ackJSON
		got := AppendACK(nil, names, m, &c)
		if err := json.Unmarshal(got, &is); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if err := json.Unmarshal([]byte(text(t, want)), &should); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(is, should) || len(got) != len(text(t, want)) {
			t.Fatalf("got  %s\nwant %s", got, text(t, want))
		}
	}
}

// TestOtherFormsAreLeftToEncodingJSON checks texts that ReadChoice must not
// read: texts that are no choices, and choices in another notation.
func TestOtherFormsAreLeftToEncodingJSON(t *testing.T) {
	const good = `{"v":2,"topology":"00000000000000ff","policy":"exclusive","cpus":"0-3","containers":{"a":"0-1","b":"2-3"}}`
	if _, read := ReadChoice(good); !read {
		t.Fatalf("%s is not read", good)
	}
	for i := range good {
		for _, bad := range []string{good[:i] + good[i+1:], good[:i] + " " + good[i:], good[:i]} {
			checkRead(t, bad)
		}
	}
	for _, bad := range []string{
		"", good + " ", good + good, strings.Replace(good, `"v":2`, `"v":3`, 1), strings.Replace(good, "exclusive", "mine", 1), strings.Replace(good, "0ff", "0FF", 1),
		strings.Replace(good, "0-3", "3-0", 1), strings.Replace(good, `"a"`, `"\u0061"`, 1), strings.Replace(good, `{"a":"0-1","b":"2-3"}`, "{}", 1),
	} {
		if c, read := ReadChoice(bad); read {
			t.Errorf("%s is read as %+v", bad, c)
		}
	}
}

// checkRead checks that ReadChoice reads a text like encoding/json, or
// refuses the text.
func checkRead(t *testing.T, text string) {
	t.Helper()
	c, read := ReadChoice(text)
	if !read {
		return
	}
	var v choiceJSON
	err := json.Unmarshal([]byte(text), &v)
	if want := jsonOf(c); err != nil || !reflect.DeepEqual(v, want) {
		t.Errorf("%s is read as %+v; by encoding/json it is %+v (%v)", text, want, v, err)
	}
}

func FuzzReadChoice(f *testing.F) {
	f.Add(`{"v":2,"topology":"00000000000000ff","policy":"shared","cpus":"0-3","domain":"0-7","containers":{"a":"0","a":""}}`)
	f.Add(fmt.Sprintf(`{"v":2,"topology":"%016x","policy":"pool","cpus":" 1 ","domain":""}`, 1))
	f.Fuzz(checkRead)
}

func BenchmarkChoice(b *testing.B) {
	c := cpus.Choice{Topology: 0xff, Policy: cpus.Exclusive, CPUs: unit.CPUSetOf(8, 9, 10, 11), Containers: map[string]unit.CPUSet{"main": unit.CPUSetOf(8, 9, 10, 11)}}
	b.ReportAllocs()
	for b.Loop() {
		var room [512]byte
		if _, read := ReadChoice(string(AppendChoice(room[:0], &c))); !read {
			b.Fatal("not read")
		}
	}
}
