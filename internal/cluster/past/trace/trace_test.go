package trace

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/decide/overcommit"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/unit"
)

func rules() overcommit.Config {
	return overcommit.Config{CPU: overcommit.Reclaim{ThresholdPercent: 60, Policy: overcommit.ByUsage}, Memory: overcommit.Reclaim{ThresholdPercent: 65, Policy: overcommit.ByUsage}, ReservedCPU: 500}
}

func read(mapping, text string) (all []prospect.Node, err error) {
	m, err := ParseMapping(mapping)
	if err != nil {
		return nil, err
	}
	table, err := Read(strings.NewReader(text), Options{Mapping: m, Rules: rules(), Step: 5})
	if err != nil {
		return nil, err
	}
	for n, err := range table.Nodes {
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// TestATableBecomesNodes reads the same two nodes from tables of several forms.
func TestATableBecomesNodes(t *testing.T) {
	for name, c := range map[string]struct{ mapping, text string }{
		"a first line with names": {"time=ts,node=machine,cpu=cores,capacity=of,memory=mem:MiB,memory-capacity=@10:GiB",
			"machine,ts,cores,of,mem\nb,600,1,10,1024\na,0,2,10,512\na,60,4,10,2048\na,901,5.9,10,\n"},
		"numbers of columns, in other units": {"time=1:ms,node=2,cpu=3:m,capacity=@10000:m,memory=4:GiB,memory-capacity=@10240:MiB",
			"600000,b,1000,1\n0,a,2000,0.5\n60000,a,4000,2\n901000,a,5900,\n"},
		"shares, and times as text": {"time=at:rfc3339,node=n,cpu=util:%,capacity=@10,memory=mem:%,memory-capacity=@10:GiB",
			"\ufeffat,n,util,mem\n1970-01-01T00:10:00Z,b,10,10\n1970-01-01T00:00:00Z,a,20,5\n1970-01-01T01:01:00+01:00,a,40,20\n1970-01-01T00:15:01Z,a,59,\n1970-01-01T00:16:01Z,a,,\n"},
	} {
		all, err := read(c.mapping, c.text)
		if err != nil || len(all) != 2 {
			t.Errorf("%s: %d nodes, %v", name, len(all), err)
			continue
		}
		a, b := all[0], all[1]
		if a.Name != "a" || a.CPU != 10_000 || a.Memory != 10<<30 || a.Start != 0 || a.Step != 5 {
			t.Errorf("%s: %+v", name, a)
		}
		free := int64(6656) // 65 % of 10 GiB, in MiB
		for what, is := range map[string][2][]int64{
			"used CPU of a":    {a.UsedCPU, {3000, -1, -1, 5900}},
			"room of a":        {a.RoomCPU, {3000, -1, -1, 100}},
			"used memory of a": {a.UsedMemory, {2048, -1, -1, -1}},
			"memory of a":      {a.RoomMemory, {free - 2048, -1, -1, -1}},
			"room of b":        {b.RoomCPU, {-1, -1, 5000, -1}},
			"memory of b":      {b.RoomMemory, {-1, -1, free - 1024, -1}},
		} {
			if !slices.Equal(is[0], is[1]) {
				t.Errorf("%s: %s is %v, want %v", name, what, is[0], is[1])
			}
		}
	}
}

// TestATableOfOneNodeNeedsNoNames has neither nodes nor memory.
func TestATableOfOneNodeNeedsNoNames(t *testing.T) {
	all, err := read("time=1:min,cpu=2:%,capacity=@4", "0,10\n5,20\n")
	if err != nil || len(all) != 1 || !slices.Equal(all[0].UsedCPU, []int64{400, 800}) || all[0].RoomMemory != nil {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestNoTwoLinesHaveTheSameTime has tables with a time twice: of one node, of nodes whose
// column is not named, and after a line with a later time.
func TestNoTwoLinesHaveTheSameTime(t *testing.T) {
	for _, c := range []struct {
		mapping, text, word string
		line                int
	}{
		{"time=t,node=n,cpu=c,capacity=k", "t,n,c,k\n0,a,1,4\n0,b,1,4\n60,a,1,4\n0,a,2,4\n", "the node has another line", 5},
		{"time=t,cpu=c,capacity=k", "t,n,c,k\n0,a,1,4\n0,b,1,4\n", "node=", 3},
		{"time=t:ms,cpu=c,capacity=k", "t,c,k\n1,1,4\n5,1,4\n2,1,4\n3,1,4\n2,1,4\n", "node=", 6},
		{"time=t:rfc3339,cpu=c,capacity=k", "t,c,k\n1970-01-01T00:00:00.5Z,1,4\n1970-01-01T00:00:00Z,1,4\n1970-01-01T01:00:00+01:00,1,4\n", "node=", 4},
	} {
		_, err := read(c.mapping, c.text)
		f, is := errors.AsType[*Fault](err)
		if !is || f.Line != c.line || f.Field != "time" || !strings.Contains(f.Problem, c.word) {
			t.Errorf("%q: %v, want a fault in line %d with %q", c.text, err, c.line, c.word)
		}
	}
}

// TestATableHasNotAnyNumberOfNodes has the column of the times as that of the nodes.
func TestATableHasNotAnyNumberOfNodes(t *testing.T) {
	var text strings.Builder
	for i := range mostNodes {
		fmt.Fprintf(&text, "%d,1,4\n", i)
	}
	if all, err := read("time=1,node=1,cpu=2,capacity=3", text.String()); err != nil || len(all) != mostNodes {
		t.Errorf("%d nodes, %v", len(all), err)
	}
	_, err := read("time=1,node=1,cpu=2,capacity=3", text.String()+"20000,1,4\n")
	if f, is := errors.AsType[*Fault](err); !is || f.Line != mostNodes+1 || f.Field != "node" || !strings.Contains(f.Problem, "node=1") {
		t.Error(err)
	}
}

// TestTheStepFitsTheLines has lines that are as many minutes apart, and one that is missing.
func TestTheStepFitsTheLines(t *testing.T) {
	for apart, want := range map[int]int64{1: 5, 5: 5, 7: 5, 10: 10, 15: 15, 20: 20, 25: 30, 60: 60, 240: 60} {
		var text strings.Builder
		for i := range 20 {
			if i != 7 {
				fmt.Fprintf(&text, "%d,1,4\n", i*apart)
			}
		}
		m, err := ParseMapping("time=1:min,cpu=2,capacity=3")
		if err != nil {
			t.Fatal(err)
		}
		table, err := Read(strings.NewReader(text.String()), Options{Mapping: m, Rules: rules(), Step: 5})
		if err != nil {
			t.Fatal(err)
		}
		if got := table.FittingStep(); got != want {
			t.Errorf("lines %d minutes apart: a step of %d minutes, want %d", apart, got, want)
		}
	}
	m, _ := ParseMapping("time=1:min,cpu=2,capacity=3")
	if table, err := Read(strings.NewReader("0,1,4\n"), Options{Mapping: m, Rules: rules(), Step: 5}); err != nil || table.FittingStep() != 5 {
		t.Errorf("one line: %v", err)
	}
}

// TestEachLineHasItsOwnCapacity has nodes that grew, shrank, and have one wrong line. The
// lines are not in the order of their times.
func TestEachLineHasItsOwnCapacity(t *testing.T) {
	const mapping = "time=t:min,node=n,cpu=c,capacity=k,memory=m:%,memory-capacity=g:GiB"
	const lines = "t,n,c,k,m,g\n10,grown,1,20,10,20\n0,grown,1,10,10,10\n5,grown,1,10,10,10\n" +
		"0,shrunk,1,20,10,20\n5,shrunk,1,20,10,20\n10,shrunk,1,10,10,10\n" +
		"0,wrong,1,10,10,10\n5,wrong,1,1000,10,1000\n10,wrong,1,10,10,10\n" +
		"0,same,1,10,10,10\n5,same,1,10,10,10\n10,same,1,10,10,10\n"
	all, err := read(mapping, lines)
	if err != nil || len(all) != 4 {
		t.Fatalf("%+v, %v", all, err)
	}
	for i, want := range []struct {
		name   string
		cpus   int64
		room   []int64
		memory []int64
	}{
		{"grown", 20, []int64{5000, 5000, 11_000}, []int64{5632, 5632, 11_264}},
		{"same", 10, []int64{5000, 5000, 5000}, []int64{5632, 5632, 5632}},
		{"shrunk", 10, []int64{5000, 5000, 5000}, []int64{4608, 4608, 5632}},
		{"wrong", 10, []int64{5000, 5000, 5000}, []int64{5632, 0, 5632}},
	} {
		n := all[i]
		if n.Name != want.name || n.CPU != unit.MilliCPU(1000*want.cpus) || n.Memory != unit.Bytes(want.cpus)<<30 || !slices.Equal(n.RoomCPU, want.room) || !slices.Equal(n.RoomMemory, want.memory) {
			t.Errorf("%+v, want %+v", n, want)
		}
	}
	m, _ := ParseMapping(mapping)
	table, err := Read(strings.NewReader(lines), Options{Mapping: m, Rules: rules(), Step: 5})
	if err != nil || table.Resized() != 3 {
		t.Errorf("%d nodes have several capacities, %v; want 3", table.Resized(), err)
	}
}

// TestAWrongTableIsOneErrorWithItsPlace checks line and field of each fault.
func TestAWrongTableIsOneErrorWithItsPlace(t *testing.T) {
	const mapping = "time=t,node=n,cpu=c,capacity=k,memory=m,memory-capacity=@1:GiB"
	const head = "t,n,c,k,m\n0,a,1,4,5\n"
	for text, want := range map[string]Fault{
		head + "x,a,1,4,5\n":              {Line: 3, Field: "time"},
		head + "-1,a,1,4,5\n":             {Line: 3, Field: "time"},
		head + "NaN,a,1,4,5\n":            {Line: 3, Field: "time"},
		head + "1e12,a,1,4,5\n":           {Line: 3, Field: "time"}, // milliseconds that count as seconds
		head + "60,a,one,4,5\n":           {Line: 3, Field: "cpu"},
		head + "60,a,-1,4,5\n":            {Line: 3, Field: "cpu"},
		head + "60,a,1,0,5\n":             {Line: 3, Field: "capacity"},
		head + "60,a,1,,5\n":              {Line: 3, Field: "capacity"},
		head + "60,,1,4,5\n":              {Line: 3, Field: "node"},
		head + "60,a,1,4,much\n":          {Line: 3, Field: "memory"},
		head + "60,a,1_0,40,5\n":          {Line: 3, Field: "cpu"},
		head + "60,a,0x1p2,40,5\n":        {Line: 3, Field: "cpu"},
		head + "6_0,a,1,4,5\n":            {Line: 3, Field: "time"},
		head + "60,a,4.5,4,5\n":           {Line: 3, Field: "cpu"}, // more than a tenth above
		head + "60,a,1000,4,5\n":          {Line: 3, Field: "cpu"},
		head + "60,a,1,4,2e9\n":           {Line: 3, Field: "memory"},
		head + "60,a,1,4\n":               {Line: 3},
		head + "60,\"a,1,4,5\n":           {Line: 3},
		head + "60,\"a\nb\",1,4,5\n,,x,,": {Line: 5, Field: "time"}, // lines and not records
		"t,n,c,m\n0,a,1,4\n":              {Line: 1, Field: "capacity"},
	} {
		_, err := read(mapping, text)
		f, is := errors.AsType[*Fault](err)
		if !is || f.Line != want.Line || f.Field != want.Field || f.Problem == "" || strings.Contains(f.Error(), "\n") {
			t.Errorf("%q: %v, want a fault in line %d of %q", text, err, want.Line, want.Field)
		}
	}
	if _, err := read(mapping, head+"60,a,4.3,4,1.1e9\n"); err != nil {
		t.Errorf("a little more than the capacity: %v", err)
	}
	if _, err := read("time=1,cpu=2,capacity=3", "0,1500,16\n"); err == nil || !strings.Contains(err.Error(), "is the unit m or %?") {
		t.Error(err)
	}
	for _, text := range []string{"", "t,n,c,k,m\n", "t,n,c,k,m\n0,a,,4,5\n"} {
		if all, err := read(mapping, text); err == nil {
			t.Errorf("%q has nodes: %+v", text, all)
		}
	}
}

// TestAWrongMappingIsRefused checks the entries.
func TestAWrongMappingIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "time", "time=t", "time=t,cpu=c", "cpu=c,capacity=k", "time=t,cpu=c,capacity=k,colour=x", "time=t,time=u,cpu=c,capacity=k", "time=t:h,cpu=c,capacity=k",
		"time=t,cpu=c,capacity=k:%", "time=t,cpu=@1,capacity=k", "time=@1,cpu=c,capacity=k", "time=t,cpu=c,capacity=k,memory=m", "time=,cpu=c,capacity=k", "time=t,cpu=c,capacity=@",
	} {
		if _, err := ParseMapping(text); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// FuzzRead reads any table: it must not crash, and all columns must have the same length.
func FuzzRead(f *testing.F) {
	f.Add("t,n,c,k\n0,a,1,4\n")
	f.Add("t,n,c,k\n0,a,1e18,1e18\n999,b,,\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := read("time=t:min,node=n,cpu=c,capacity=k", text)
		for _, n := range all {
			if len(n.UsedCPU) != len(n.RoomCPU) || len(n.UsedCPU) != len(all[0].UsedCPU) || err != nil {
				t.Errorf("%q: %+v", text, n)
			}
			for i, room := range n.RoomCPU {
				if room > int64(n.CPU) || room < prospect.Absent || (room == prospect.Absent) != (n.UsedCPU[i] == prospect.Absent) {
					t.Error(fmt.Sprint(text, n))
				}
			}
		}
	})
}
