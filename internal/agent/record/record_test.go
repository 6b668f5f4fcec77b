package record

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/decide/plan"
	"tenon.sh/tenon/internal/decide/policy"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// diffExactly compares values including their unexported fields. A nil map or
// slice equals an empty one. It returns the difference, or "".
func diffExactly(a, b any) string {
	return cmp.Diff(a, b,
		cmp.Exporter(func(reflect.Type) bool { return true }),
		cmp.Comparer(func(x, y error) bool { return fmt.Sprint(x) == fmt.Sprint(y) }),
		cmp.FilterValues(func(x, y any) bool { return empty(x) && empty(y) }, cmp.Ignore()))
}

func empty(x any) bool {
	v := reflect.ValueOf(x)
	return (v.Kind() == reflect.Map || v.Kind() == reflect.Slice) && v.Len() == 0
}

// linesOf records ticks as text. every is the distance between two key lines.
func linesOf(t *testing.T, turns []Tick, every int) string {
	t.Helper()
	var b bytes.Buffer
	var e encoder
	for i, turn := range turns {
		l, err := e.line(turn, i+1, i%every == 0)
		if err != nil {
			t.Fatal(err)
		}
		text, err := printable.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(text, '\n'))
	}
	return b.String()
}

func TestTicksReadAsTheyWereRecorded(t *testing.T) { readBack(t, lived(12, 300, time.Second)) }

// TestNamesOfAnyBytesAreRecorded uses names of cgroups that are not UTF-8, which the
// kernel accepts. JSON can hold none of them. It also uses names that look like what
// JSON, or the record, makes of such names.
func TestNamesOfAnyBytesAreRecorded(t *testing.T) {
	l := newLife(4)
	for _, name := range []string{"\xff", "\xfe", "\ufffd", "caf\xe9/\xff", "caf\u00e9", `a\x2db`, `"\xff"`, `\ufffd`, "\xff\xfe"} {
		l.join(node.WorkloadID("be.slice/"+name), node.BE)
		l.join(node.WorkloadID("ls.slice/"+name), node.LS)
	}
	var turns []Tick
	for range 150 {
		turns = append(turns, l.tick(time.Second))
	}
	readBack(t, turns)
	r, err := Replay(strings.NewReader(linesOf(t, turns, 64)), nil)
	if err != nil || !r.Identical() || r.Ticks != len(turns) || r.RecordedSteps == 0 {
		t.Errorf("%v: %+v", err, r)
	}
}

// readBack records ticks, and compares what is read with them.
func readBack(t *testing.T, turns []Tick) {
	t.Helper()
	r, err := newReader(strings.NewReader(linesOf(t, turns, 64)))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range turns {
		got, err := r.next()
		if err != nil {
			t.Fatalf("turn %d: %v", i+1, err)
		}
		if got.key != (i%64 == 0) || got.follows != (i > 0) {
			t.Errorf("turn %d: key %v, follows %v", i+1, got.key, got.follows)
		}
		if !got.key {
			want.Before = got.Before // only key lines contain it
		}
		byKnob := firstByKnob(want.Wants)
		want.Wants = nil
		for _, k := range bothKeys(byKnob, nil) {
			want.Wants = append(want.Wants, byKnob[k])
		}
		for j, w := range want.Wants {
			if w.Intent != plan.Set {
				want.Wants[j].Value = nil // the value of such a want has no meaning
			}
		}
		if diff := diffExactly(want, got.Tick); diff != "" {
			t.Fatalf("turn %d (-recorded +read):\n%s", i+1, diff)
		}
	}
}

// TestAnHourReplaysIdentically records and replays an hour with every kind of
// event. The flight recorder promises that the replay is identical.
func TestAnHourReplaysIdentically(t *testing.T) {
	turns := lived(6, 3600, time.Second)
	r, err := Replay(strings.NewReader(linesOf(t, turns, 500)), nil)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Identical() || r.Ticks != 3600 || r.Stretches != 1 || r.Torn || r.RecordedSteps == 0 || r.ReplayedSteps != r.RecordedSteps {
		t.Errorf("%+v", r)
	}
}

// TestTheOrdersOfTheBESchedulerReplay records half an hour in which the BE
// scheduler is loaded, ejected and loaded again, while work starts and ends.
// The replay must give the same orders, word for word.
func TestTheOrdersOfTheBESchedulerReplay(t *testing.T) {
	l := newLife(8)
	l.isolates()
	var turns []Tick
	orders, slots, caps := 0, map[int]bool{}, 0
	for range 1800 {
		turns = append(turns, l.tick(time.Second))
		for _, o := range turns[len(turns)-1].Done {
			switch v := o.Step.To.(type) {
			case node.SchedulerGroup:
				orders, slots[v.Slot] = orders+1, true
			case node.SchedulerCap:
				caps++
			}
		}
	}
	if orders < 80 || len(slots) < 10 || caps < 100 {
		t.Errorf("it has %d orders for cgroups, %d slots, %d caps", orders, len(slots), caps)
	}
	text := linesOf(t, turns, 500)
	r, err := Replay(strings.NewReader(text), nil)
	if err != nil || !r.Identical() || r.Ticks != 1800 || r.ReplayedSteps != r.RecordedSteps {
		t.Errorf("%v: %+v", err, r)
	}
	// If the replayed ticks are recorded again, the record must be the same,
	// byte for byte.
	from, err := newReader(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var again []Tick
	var state policy.State
	for i := range turns {
		e, err := from.next()
		if err != nil {
			t.Fatal(err)
		}
		e.Before = state
		state, e.Wants, _ = e.decide(e.Config, state)
		again = append(again, e.Tick)
		if got := turns[i].Before; i > 0 && diffExactly(got.Selector, e.Before.Selector) != "" {
			t.Fatalf("turn %d remembers something else", i+1)
		}
	}
	if linesOf(t, again, 500) != text {
		t.Error("the replay's record differs from the first")
	}
}

// TestEveryFieldIsRecorded changes one field of a snapshot after the other,
// records the snapshot and reads it again. It finds new fields of package node
// that the record lacks.
func TestEveryFieldIsRecorded(t *testing.T) {
	full := filled()
	n := leaves(reflect.ValueOf(&full).Elem(), "", nil)
	if len(n) < 200 {
		t.Fatalf("only %d fields: %v", len(n), n)
	}
	for _, path := range n {
		changed := filled()
		found := false
		leaves(reflect.ValueOf(&changed).Elem(), "", func(p string, v reflect.Value) {
			if p == path {
				found = true
				fill(v.Addr(), 2)
			}
		})
		if !found {
			t.Fatalf("%s was not found again", path)
		}
		changed.Snapshot.At = full.Snapshot.At.Add(time.Second)
		text := linesOf(t, []Tick{full, changed}, 10)
		r, err := newReader(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.next(); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		got, err := r.next()
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		changed.Before = got.Before
		if diff := diffExactly(changed, got.Tick); diff != "" {
			t.Errorf("a change of %s is not recorded (-want +got):\n%s", path, diff)
		}
	}
}

// filled returns a tick in which no field is zero. Every call returns the same
// tick.
func filled() Tick {
	var t Tick
	fill(reflect.ValueOf(&t.Config), 1)
	t.Snapshot.Knobs = node.Knobs{ // values of many types
		Now:    map[node.Knob]node.Value{{Cgroup: "a", File: node.FilePIDs}: node.Maximum{Max: 4}},
		Before: map[node.Knob]node.Value{{Cgroup: "a", File: node.FilePIDs}: node.Maximum{Max: 3}},
	}
	s := reflect.ValueOf(&t.Snapshot).Elem()
	for i := range s.NumField() {
		if s.Type().Field(i).Name != "Knobs" {
			fill(s.Field(i).Addr(), 1)
		}
	}
	fill(reflect.ValueOf(&t.Snapshot.Knobs.Kernel), 1)
	return t
}

// fill sets the value to which v points, and everything inside it. n determines
// all values.
func fill(v reflect.Value, n int64) {
	if m, isMaybe := v.Interface().(json.Unmarshaler); isMaybe && strings.Contains(v.Type().String(), "Maybe") {
		if err := m.UnmarshalJSON([]byte(fmt.Sprint(n))); err != nil {
			panic(err)
		}
		return
	}
	if set, isSet := v.Interface().(*unit.CPUSet); isSet {
		*set = unit.CPUSetOf(unit.CPU(n))
		return
	}
	if at, isTime := v.Interface().(*time.Time); isTime {
		*at = time.Unix(n, 0).UTC()
		return
	}
	v = v.Elem()
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v, n)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i).Addr(), n)
			}
		}
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0).Addr(), n)
	case reflect.Array:
		for i := range v.Len() {
			fill(v.Index(i).Addr(), n)
		}
	case reflect.Map:
		key, elem := reflect.New(v.Type().Key()), reflect.New(v.Type().Elem())
		fill(key, n)
		fill(elem, n)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key.Elem(), elem.Elem())
	case reflect.String:
		v.SetString(fmt.Sprint("v", n))
	case reflect.Bool:
		v.SetBool(n%2 == 1)
	case reflect.Float64:
		v.SetFloat(float64(n) / 3)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(n))
	default:
		v.SetInt(n)
	}
}

// leaves visits each part of v that fill changes as a unit. It returns the
// paths. It omits fields of a Tick that do not describe the node.
func leaves(v reflect.Value, path string, visit func(string, reflect.Value)) []string {
	switch path {
	case ".Tick.Snapshot.At", ".Tick.Snapshot.Knobs.Now", ".Tick.Snapshot.Knobs.Before", ".Tick.Wants", ".Tick.Objectives", ".Tick.Baselines", ".Tick.Lasted", ".Tick.BackOff", ".Tick.Single", ".Tick.Misfits", ".Tick.Reclaim", ".Tick.Victims", ".Tick.Slices", ".Tick.Watermark", ".Tick.Batch", ".Tick.Promises", ".Tick.Outlook", ".Tick.Held", ".Tick.Trials", ".Tick.Selection", ".Tick.Isolation", ".Tick.Done", ".Tick.Shadow", ".Tick.Refused", ".Before", ".Tick.Snapshot.Workloads[].ID":
		return nil
	}
	composite := v.Kind() == reflect.Struct && !strings.Contains(v.Type().String(), "Maybe") && v.Type() != reflect.TypeFor[unit.CPUSet]() && v.Type() != reflect.TypeFor[time.Time]()
	var all []string
	switch {
	case composite:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				all = append(all, leaves(v.Field(i), path+"."+f.Name, visit)...)
			}
		}
	case v.Kind() == reflect.Pointer && !v.IsNil():
		all = leaves(v.Elem(), path, visit)
	case v.Kind() == reflect.Slice && v.Len() > 0 && v.Index(0).Kind() == reflect.Struct:
		all = leaves(v.Index(0), path+"[]", visit)
	default:
		if visit != nil {
			visit(path, v)
		}
		all = []string{path}
	}
	return all
}

// TestTheReportCountsOneOfEach has one tick, one write, and one line of each kind
// that is not used. The lines of other releases may be of several versions.
func TestTheReportCountsOneOfEach(t *testing.T) {
	got := Report{Ticks: 1, RecordedSteps: 1, Skipped: 1, Foreign: 1, OtherVersion: version + 1}.String()
	for _, want := range []string{
		"Record: 1 tick from ", ", 1 write.\n", "1 line is skipped at the start, for lack of the ticks before.\n",
		fmt.Sprintf("1 line is left out, recorded by another release: the last is of version %d of the record", version+1),
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
}

func TestAnotherConfigurationShowsWhatItWouldHaveDone(t *testing.T) {
	turns := lived(6, 300, time.Second)
	text := linesOf(t, turns, 500)
	r, err := Replay(strings.NewReader(text), &policy.Config{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Identical() || !r.Other || r.Differ == 0 || len(r.Changes) == 0 {
		t.Fatalf("%+v", r)
	}
	var quota *Change
	for i, c := range r.Changes {
		if c.Knob == (node.Knob{Cgroup: "be.slice", File: node.FileCPUMax}) {
			quota = &r.Changes[i]
		}
	}
	if quota == nil || quota.Replayed != "release" || quota.Reason != "CPU suppress is off" {
		t.Errorf("cpu.max of be.slice: %+v", quota)
	}
	for _, want := range []string{"With this configuration: ", "KNOB", "be.slice cpu.max", "release"} {
		if !strings.Contains(r.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, r)
		}
	}
	// A disabled policy releases its knobs once and then writes nothing more.
	if r.ReplayedSteps >= r.RecordedSteps {
		t.Errorf("%d writes instead of %d", r.ReplayedSteps, r.RecordedSteps)
	}
}

func TestAChangedDecisionIsFound(t *testing.T) {
	turns := lived(6, 120, time.Second)
	text := linesOf(t, turns, 50)
	for name, change := range map[string][2]string{
		"a reason":   {" of 8000m - ", " of 8000m + "},
		"an intent":  {`"file":"cpu.max","intent":"set"`, `"file":"cpu.max","intent":"abstain"`},
		"a step":     {`"to":"`, `"to":"1000 1`},
		"the owner":  {`"owner":"suppress"`, `"owner":"oppress"`},
		"the memory": {`"counter":{"be.slice/unit-001.service":`, `"counter":{"be.slice/unit-001.service":1`},
	} {
		i := strings.LastIndex(text, change[0])
		if i < 0 {
			t.Errorf("%s: %q is not in the record", name, change[0])
			continue
		}
		r, err := Replay(strings.NewReader(text[:i]+change[1]+text[i+len(change[0]):]), nil)
		if err == nil && r.Identical() {
			t.Errorf("%s was changed and the replay is identical", name)
		}
	}
}

func TestARecordThatStartsInTheMiddleReplays(t *testing.T) {
	text := linesOf(t, lived(6, 120, time.Second), 50)
	lines := strings.SplitAfter(text, "\n")
	r, err := Replay(strings.NewReader(strings.Join(lines[20:], "")), nil)
	if err != nil || !r.Identical() || r.Ticks != 70 || r.Skipped != 30 {
		t.Errorf("%+v, %v", r, err)
	}
	r, err = Replay(strings.NewReader(strings.Join(lines[:20], "")+strings.Join(lines[50:], "")), nil)
	if err != nil || !r.Identical() || r.Stretches != 2 {
		t.Errorf("without turns 21 to 50: %+v, %v", r, err)
	}
	if _, err = Replay(strings.NewReader(strings.Join(lines[:20], "")+strings.Join(lines[25:], "")), nil); err == nil ||
		!strings.Contains(err.Error(), "line 21") {
		t.Errorf("without turns 21 to 25: %v", err)
	}
}

func TestATornLastLineIsTolerated(t *testing.T) {
	text := linesOf(t, lived(4, 20, time.Second), 50)
	for cut := 1; cut < 400; cut += 7 {
		r, err := Replay(strings.NewReader(text[:len(text)-cut]), nil)
		if err != nil || !r.Identical() || !r.Torn || r.Ticks < 17 {
			t.Fatalf("%d bytes are missing: %+v, %v", cut, r, err)
		}
	}
}

func TestWhatIsNoRecordIsRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing":          {"", "no tick"},
		"other text":       {"hello\n", "line 1"},
		"a newer record":   {versionLine(version+1, `"tick":1,"state":{},"color":"red"}`+"\n"+`{"tick":2}`), fmt.Sprintf("version %d, and this program reads version %d", version+1, version)},
		"a field too many": {versionLine(version, `"tick":1,"state":{},"color":"red"}`), "color"},
		"half a key":       {versionLine(version, `"tick":1,"state":{}}`), "must hold"},
		"no key":           {`{"tick":7}` + "\n", "no tick"},
		"damaged":          {"\x1f\x8bxxxxxxxxxxxx", "gzip"},
	} {
		if _, err := Replay(strings.NewReader(c.text), nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// versionLine returns a line of a record of the given version.
func versionLine(version int, rest string) string {
	return fmt.Sprintf(`{"version":%d,`, version) + rest + "\n"
}

// TestTicksOfAnotherVersionAreLeftOut reads a ring that also contains ticks of
// another version, as after an update of tenond. The reader must skip them.
func TestTicksOfAnotherVersionAreLeftOut(t *testing.T) {
	turns := lived(4, 30, time.Second)
	old := strings.Replace(linesOf(t, turns[:10], 50), strings.TrimSpace(versionLine(version, "")), strings.TrimSpace(versionLine(version+20, `"color":"red",`)), 1)
	r, err := Replay(strings.NewReader(old+linesOf(t, turns[10:], 50)), nil)
	if err != nil || !r.Identical() || r.Ticks != 20 || r.Stretches != 1 || r.Foreign != 10 {
		t.Errorf("an older one before: %v, %+v", err, r)
	}
	if want := fmt.Sprintf("10 lines are left out, recorded by another release: the last is of version %d of the record, and this program reads version %d.\n", version+20, version); !strings.Contains(r.String(), want) {
		t.Errorf("the report lacks %q:\n%v", want, r)
	}
	var own bytes.Buffer
	for i, line := range strings.SplitAfter(linesOf(t, turns, 10), "\n") {
		if i == 10 { // the second of three key lines
			line = strings.Replace(line, strings.TrimSpace(versionLine(version, "")), strings.TrimSpace(versionLine(version+1, "")), 1)
		}
		own.WriteString(line)
	}
	if r, err = Replay(&own, nil); err != nil || !r.Identical() || r.Ticks != 20 || r.Stretches != 2 || r.Foreign != 10 {
		t.Errorf("a newer one between: %v, %+v", err, r)
	}
}

func TestWorkloadsOutOfOrderAreRefused(t *testing.T) {
	var e encoder
	turn := Tick{}
	turn.Snapshot.Workloads = []node.Workload{{ID: "b"}, {ID: "a"}}
	if _, err := e.line(turn, 1, true); err == nil {
		t.Error("a record of them would replay to something else")
	}
}

func FuzzReplay(f *testing.F) {
	l := newLife(3)
	var e encoder
	var text []byte
	for i := range 3 {
		line, err := e.line(l.tick(time.Second), i+1, i == 0)
		if err != nil {
			f.Fatal(err)
		}
		one, err := printable.Marshal(line)
		if err != nil {
			f.Fatal(err)
		}
		text = append(append(text, one...), '\n')
	}
	f.Add(text)
	f.Add([]byte(versionLine(version, `"tick":1,"state":{},"config":{},"max_steps":0,"rest":{},"usage":{}}`)))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Replay(bytes.NewReader(text), nil)
		if err == nil && r.Ticks == 0 {
			t.Error("no turn and no error")
		}
		_ = r.String()
		_, _ = Replay(bytes.NewReader(text), &policy.Config{})
	})
}

func BenchmarkRecord(b *testing.B) {
	for _, n := range []int{100, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			r, err := Open(b.TempDir(), 0)
			if err != nil {
				b.Fatal(err)
			}
			l := newLife(n)
			turns := make([]Tick, 64)
			for i := range turns {
				turns[i] = l.tick(time.Second)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				at := i % (2 * len(turns)) // forwards and backwards, so that no two ticks differ much
				if err := r.Record(turns[min(at, 2*len(turns)-1-at)]); err != nil {
					b.Fatal(err)
				}
				i++
			}
			if r.number == 1 { // the first file, which has the key line
				b.ReportMetric(float64(r.file.size)/float64(i), "B/turn")
			}
		})
	}
}
