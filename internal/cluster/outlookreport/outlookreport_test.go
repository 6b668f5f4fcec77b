package outlookreport

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/decide/promise"
	"tenon.sh/tenon/internal/decide/prospect"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

// full returns an outlook in which no field has its zero value.
func full() prospect.Outlook {
	n := int64(100)
	next := func() int64 { n++; return n }
	hour := func() prospect.Hour {
		return prospect.Hour{
			CPU:    prospect.Spread[unit.MilliCPU]{Steps: next(), Low: unit.MilliCPU(next()), Mean: unit.MilliCPU(next()), Used: node.Some(unit.MilliCPU(next()))},
			Memory: prospect.Spread[unit.Bytes]{Steps: next(), Low: unit.Bytes(next()) << 20, Mean: unit.Bytes(next()) << 20, Used: node.Some(unit.Bytes(next()) << 20)},
		}
	}
	o := prospect.Outlook{
		Name: "node-1", CPU: 64_000, Memory: 256 << 30, From: 29_000_000, To: 29_010_080, Step: 1, Seen: 10_000, All: hour(),
		Promises: []promise.Promise{{
			Hours: 6, Percent: 90, CPU: promise.Amount[unit.MilliCPU]{Code: promise.Known, Value: 5200, Judged: 667, Kept: 601, SkillPercent: node.Some(unit.Percent(40)), Better: true},
			Memory: promise.Amount[unit.Bytes]{Code: promise.TooFew, Needed: 8, Judged: 1, Kept: 1},
		}},
	}
	for i := range o.Hours {
		o.Hours[i] = hour()
	}
	for _, part := range []*prospect.Part{&o.Week.Weekdays, &o.Week.Weekend} {
		part.All = hour().CPU
		for i := range part.Hours {
			part.Hours[i] = hour().CPU
		}
	}
	for _, d := range []int64{1, 2, 4, 5} {
		o.Week.Days = append(o.Week.Days, prospect.DayRoom{Day: o.From/(24*60) + d, Mean: unit.MilliCPU(next())})
	}
	o.Hours[3].CPU.Used, o.Hours[4] = node.Maybe[unit.MilliCPU]{}, prospect.Hour{}
	for _, length := range []time.Duration{10 * time.Minute, time.Hour, 6 * time.Hour} {
		for _, fill := range []unit.Percent{50, 75, 100} {
			o.Risks = append(o.Risks, prospect.Risk{Length: length, Fill: fill, CPU: prospect.Trials{Jobs: next(), Failed: next(), Variance: 400, Free: next()}, Memory: prospect.Trials{Jobs: next(), Failed: next(), Variance: 900, Free: next()}})
		}
	}
	for _, by := range []string{"logging/agent", ""} {
		o.Hurt = append(o.Hurt, prospect.Hurt{Service: "shop/web", By: by, Minutes: next(), Lost: time.Duration(next()) * time.Second})
	}
	return o
}

// statusOf is what an agent sends of an outlook and its promises.
func statusOf(t *testing.T, o prospect.Outlook) *v1alpha1.NodeReportStatus {
	t.Helper()
	s := &v1alpha1.NodeReportStatus{Outlook: Convert(o), Promises: &v1alpha1.Promises{}}
	for _, p := range o.Promises {
		cpu := v1alpha1.PromisedAmount{Hours: int32(p.Hours), Percent: int32(p.Percent), Judged: p.CPU.Judged, Kept: p.CPU.Kept, Skill: new(int32(p.CPU.SkillPercent.Or(0))), Better: p.CPU.Better}
		memory := v1alpha1.PromisedAmount{Hours: int32(p.Hours), Percent: int32(p.Percent), Lacking: int32(p.Memory.Needed), Judged: p.Memory.Judged, Kept: p.Memory.Kept}
		cpu.Amount = Convert(prospect.Outlook{CPU: p.CPU.Value}).Capacity.CPU
		s.Promises.CPU, s.Promises.Memory = append(s.Promises.CPU, cpu), append(s.Promises.Memory, memory)
	}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	var read v1alpha1.NodeReportStatus
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	return &read
}

// TestWhatTheAgentSendsIsRead sends an outlook through the API. A field that one of the
// two directions forgets has its zero value.
func TestWhatTheAgentSendsIsRead(t *testing.T) {
	sent := full()
	got, has := Read("node-1", statusOf(t, sent))
	if !has || !reflect.DeepEqual(got, sent) {
		t.Errorf("sent %+v\nread %+v", sent, got)
	}
	observes := statusOf(t, sent)
	observes.Shadow, observes.Promises = &v1alpha1.Shadow{Promises: observes.Promises}, nil
	if got, has := Read("node-1", observes); !has || !reflect.DeepEqual(got, sent) {
		t.Errorf("of an observer: sent %+v\nread %+v", sent, got)
	}
	v := reflect.ValueOf(sent)
	for i := range v.NumField() {
		if name := v.Type().Field(i).Name; v.Field(i).IsZero() && !slices.Contains([]string{"Pool", "Days", "Lasting", "BatchCPU"}, name) {
			t.Errorf("this test has no value of %s", name)
		}
	}
	for _, of := range []any{sent.Hours[0].CPU, sent.Hours[0].Memory, sent.Risks[0], sent.Risks[0].CPU, sent.Risks[0].Memory, sent.Hurt[0], sent.Week, sent.Week.Weekend, sent.Week.Weekend.Hours[23], sent.Week.Days[3]} {
		for i, v := 0, reflect.ValueOf(of); i < v.NumField(); i++ {
			if v.Field(i).IsZero() {
				t.Errorf("this test has no value of %T.%s", of, v.Type().Field(i).Name)
			}
		}
	}
	if _, has := Read("node-1", &v1alpha1.NodeReportStatus{}); has {
		t.Error("a report without an outlook has one")
	}
}

// TestAnOutlookTakesLessThan4500Bytes has the largest numbers of a node of 256 CPUs and 4 TiB, and
// names that are too long.
func TestAnOutlookTakesLessThan4500Bytes(t *testing.T) {
	o := full()
	o.CPU, o.Memory = 256_000, 4<<40
	most := prospect.Hour{
		CPU:    prospect.Spread[unit.MilliCPU]{Steps: 10_080, Low: o.CPU, Mean: o.CPU, Used: node.Some(o.CPU)},
		Memory: prospect.Spread[unit.Bytes]{Steps: 10_080, Low: o.Memory, Mean: o.Memory, Used: node.Some(o.Memory)},
	}
	o.All = most
	for i := range o.Hours {
		o.Hours[i] = most
		o.Hours[i].CPU.Steps, o.Hours[i].Memory.Steps = 420, 420
	}
	for _, part := range []*prospect.Part{&o.Week.Weekdays, &o.Week.Weekend} {
		part.All = most.CPU
		for i := range part.Hours {
			part.Hours[i] = o.Hours[i].CPU
		}
	}
	o.Week.Days = nil
	for d := range int64(8) {
		o.Week.Days = append(o.Week.Days, prospect.DayRoom{Day: o.From/(24*60) + d, Mean: o.CPU})
	}
	for i := range o.Risks {
		o.Risks[i].CPU, o.Risks[i].Memory = prospect.Trials{Jobs: 10_080, Failed: 10_080, Variance: 10_000 * 10_000, Free: 6}, prospect.Trials{Jobs: 10_080, Failed: 10_080, Variance: 10_000 * 10_000, Free: 6}
	}
	o.Hurt = nil
	for i := range 9 {
		h := prospect.Hurt{Service: strings.Repeat("ä", 200), By: "a" + strings.Repeat("ä", 200), Minutes: 10_080, Lost: 7 * 24 * time.Hour}
		if i%8 > 4 { // of these, an outlook has three
			h.By = ""
		}
		o.Hurt = append(o.Hurt, h)
	}
	out := Convert(o)
	text, err := json.Marshal(out)
	if err != nil || len(text) > 4500 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	if len(out.Hurt) != 8 || len(out.Hurt[0].Service) > 34 || !strings.Contains(out.Hurt[0].By, "...") || strings.Contains(string(text), "�") {
		t.Errorf("%+v", out.Hurt)
	}
}

// TestListsOfDifferentLengthsAreNotRead: another program may write a report.
func TestListsOfDifferentLengthsAreNotRead(t *testing.T) {
	s := statusOf(t, full())
	s.Outlook.MilliCPU.Mean = s.Outlook.MilliCPU.Mean[:3]
	s.Outlook.MemoryMiB = v1alpha1.OutlookByHour{}
	s.Outlook.Risks.Evicted = s.Outlook.Risks.Evicted[:2]
	s.Outlook.Capacity = v1alpha1.Usage{}
	got, has := Read("node-1", s)
	if !has || got.Hours[2].CPU.Steps == 0 || got.Hours[3].CPU.Steps != 0 || got.All.CPU.Steps != 0 || got.Hours[2].Memory.Steps != 0 || len(got.Risks) != 2 || got.CPU != 0 {
		t.Errorf("%+v", got)
	}
}
