package podpages

import (
	"encoding"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/cluster/cpumap"
	"tenon.sh/tenon/internal/cluster/schedulers"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/model/unit"
)

const ownPod = "kind: Pod\nmetadata: {name: p, namespace: shop, annotations: {cpuset-scheduler: 'true'}}\nspec: {containers: [{name: c, resources: {requests: {cpu: 2}, limits: {cpu: 2}}}]}\n"

// TestTheFieldsOfAnswersAreDocumented looks up each JSON field in the manual.
func TestTheFieldsOfAnswersAreDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/kubectl-tenon.md")
	if err != nil {
		t.Fatal(err)
	}
	for command, v := range map[string]any{"explain pod": PodPage{}, "fit": FitPage{}, "map": cpumap.Page{}} {
		_, section, found := strings.Cut(string(text), "### `"+command+" -o json`\n")
		section, _, _ = strings.Cut(section, "\n#")
		if !found {
			t.Errorf("no section for %s", command)
		}
		listed := map[string]bool{}
		for line := range strings.SplitSeq(section, "\n") {
			if field, isRow := strings.CutPrefix(line, "| `"); isRow {
				field, _, _ = strings.Cut(field, "`")
				listed[field] = true
			}
		}
		for _, field := range fields("", reflect.TypeOf(v)) {
			if !listed[field] {
				t.Errorf("%s: %s is not in the table", command, field)
			}
			delete(listed, field)
		}
		for field := range listed {
			t.Errorf("%s: there is no field %s", command, field)
		}
	}
}

// fields lists the JSON fields of a type, such as nodes[].why.
func fields(prefix string, of reflect.Type) []string {
	switch of.Kind() {
	case reflect.Pointer:
		return fields(prefix, of.Elem())
	case reflect.Slice:
		return fields(prefix+"[]", of.Elem())
	}
	var all []string
	if of.Kind() != reflect.Struct || of.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return []string{strings.TrimSuffix(prefix, "[]")}
	}
	if prefix != "" {
		prefix += "."
	}
	for f := range of.NumField() {
		if of.Field(f).Anonymous {
			all = append(all, fields(prefix, of.Field(f).Type)...)
		}
		if name, _, _ := strings.Cut(of.Field(f).Tag.Get("json"), ","); name != "" && name != "-" {
			all = append(all, fields(prefix+name, of.Field(f).Type)...)
		}
	}
	return all
}

// TestAnswersAsDataHaveTheSameContent compares fields with the text.
func TestAnswersAsDataHaveTheSameContent(t *testing.T) {
	c := scene(t)
	page, _ := c.ExplainPod("shop", "web-0", schedulers.Seen{})
	if page.State != PodHolds || page.Held.CPUs != "10-11" || page.Held.Chosen != "9-10" || page.Asks.Policy != "shared" || page.Asks.Request != "500m" {
		t.Errorf("%+v %+v", page, page.Held)
	}
	drawn, err := c.Map("node-1")
	if err != nil {
		t.Fatal(err)
	}
	m := drawn.Page()
	if m.Open != 10 || m.Online != 16 || len(m.Caches) != 2 || m.Caches[0].Open != 3 || m.Reserved.String() != "7" || len(m.Owners) != 5 {
		t.Errorf("%+v", m)
	}
	if m.Offline != "" || m.Silent || !m.Made.Equal(noon) || len(m.CPUs) != m.Online {
		t.Errorf("%+v", m)
	}
	for _, k := range m.Caches { // the same in two forms
		open := 0
		for _, cpu := range m.CPUs {
			if cpu.Open && cpu.L3 == k.L3 {
				open++
			}
		}
		if open != k.Open {
			t.Errorf("L3 %d has %d open CPUs, and in the list %d", k.L3, k.Open, open)
		}
	}
	for _, o := range m.Owners {
		held := unit.CPUSet{}
		for _, cpu := range m.CPUs {
			if slices.Contains(slices.Concat(cpu.Owners, cpu.Seats, cpu.Pools), o.Pod) {
				held.Add(unit.CPU(cpu.CPU))
			}
		}
		if held != o.CPUs || (o.Where == "one L3 cache") != (o.Policy != cpus.Exclusive) {
			t.Errorf("%+v has CPUs %v in the list", o, held)
		}
	}
	i := slices.IndexFunc(m.Owners, func(o cpumap.Owner) bool { return o.Pod == "shop/cache-0" })
	if i < 0 || m.Owners[i].By != "node" || m.Owners[i].CPUs.String() != "2" || m.Owners[i].Why == "" || !m.Owners[i].Reported {
		t.Errorf("%+v", m.Owners)
	}
	if !slices.Equal(m.Caches[0].Cores, []string{"0,8", "1,9", "2,10", "3,11"}) {
		t.Errorf("cores %v", m.Caches[0].Cores)
	}
	found := c.Fit(manifests(t, ownPod).Wanted, Webhook{}, nil)
	text, err := json.Marshal(found)
	if err != nil || !strings.Contains(string(text), `"pod":"shop/p","count":1,"asks":{"policy":"exclusive","cpus":2,"text":"2 CPUs of its own"},"scheduler":"default-scheduler","answer":"fits","node":"node-2","rating":`) {
		t.Errorf("%s: %v", text, err)
	}
	if found.Pods[0].Rating == nil || !strings.Contains(found.Text(), "node-2  "+ratingText(found.Pods[0].Rating)+" ") {
		t.Error("no rating in\n" + found.Text())
	}
}
