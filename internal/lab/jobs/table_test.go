package jobs

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	head = "Host,Type,Concurrency,CPU,Memory,JobID,PodID,JobPodID,DockerID,TimeIn,TimeOut,Source\n"
	idA  = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

func TestRowsWithADashInTheTypeAreReadRight(t *testing.T) {
	rows := head +
		"node00,bm,8,0.8,8gi,3,t8fs5_default_transcoder,3," + idA + ",1489746275,1489746528,source4.mp4\n" +
		"node01,aws,16cx1,4,2.5,1gi,0,x1y2z_default_transcoder,0," + idA + ",1489746275,1489746300,source1.mp4\n" +
		"node01,aws,16cx1,b,4,2.5,1gi,0,x1y2z_default_transcoder,0," + idA + ",1489746275,1489746300,source1.mp4\n"
	got, err := ReadTable(strings.NewReader(rows))
	if err != nil {
		t.Fatal(err)
	}
	want := []Job{
		{Host: "node00", Type: "bm", Concurrency: 8, CPU: 800, Memory: 8 << 30, Index: 3, Pod: "t8fs5_default_transcoder", Container: 3},
		{Host: "node01", Type: "aws-16cx1", Concurrency: 4, CPU: 2500, Memory: 1 << 30, Pod: "x1y2z_default_transcoder"},
		{Host: "node01", Type: "aws-16cx1-b", Concurrency: 4, CPU: 2500, Memory: 1 << 30, Pod: "x1y2z_default_transcoder"},
	}
	for i := range want {
		want[i].ContainerID, want[i].Precision = idA, time.Second
		want[i].In, want[i].Out, want[i].Source = time.Unix(1489746275, 0).UTC(), time.Unix(1489746300, 0).UTC(), "source1.mp4"
	}
	want[0].Out, want[0].Source = time.Unix(1489746528, 0).UTC(), "source4.mp4"
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(unit.CPUSet{}, node.Maybe[float64]{}, node.Maybe[int64]{}, node.Maybe[unit.Bytes]{})); diff != "" {
		t.Error(diff)
	}
}

func TestOurTableReadsBackAsItWasWritten(t *testing.T) {
	in := time.Date(2026, 1, 2, 3, 4, 5, 678, time.UTC)
	all := []Job{
		{
			Host: "worker-1", Type: "tenon", Concurrency: 4, CPU: 500, Memory: 858993460, Index: 2, Pod: "a_b_c", Container: 2, ContainerID: idA,
			In: in, Out: in.Add(1500 * time.Millisecond), Source: "source 1, part 2.mp4", Precision: time.Nanosecond,
			Extra: Extra{
				Strategy: "pinned", Block: 2, Run: 17, Slice: unit.CPUSetOf(0, 1, 5), Threads: 2, Work: node.Some(120.0), JobWork: node.Some(60.5),
				LocalJobs: node.Some(3.5), QueueSeconds: node.Some(0.0), Migrations: node.Some(3.0), Switches: node.Some(4.0),
				Cycles: node.Some(1e12), Instructions: node.Some(2e12), CacheMisses: node.Some(5.0), CPUSeconds: node.Some(0.0),
				Periods: node.Some[int64](15), ThrottledPeriods: node.Some[int64](0), ThrottledSeconds: node.Some(0.25), WaitSeconds: node.Some(1e-9),
				PeakMemory: node.Some[unit.Bytes](700 << 20), Void: "steal time of 3 %",
			},
		},
		{Host: "worker-1", Type: "quota", Concurrency: 1, In: in, Out: in, Precision: time.Nanosecond},
	}
	var b bytes.Buffer
	if err := WriteTable(&b, all); err != nil {
		t.Fatal(err)
	}
	if line, _, _ := strings.Cut(b.String(), "\n"); !strings.HasPrefix(line+"\n", strings.TrimSpace(head)) {
		t.Errorf("the table begins with %q, want the published columns first", line)
	}
	got, err := ReadTable(&b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(all, got, cmp.AllowUnexported(unit.CPUSet{}, node.Maybe[float64]{}, node.Maybe[int64]{}, node.Maybe[unit.Bytes]{})); diff != "" {
		t.Error(diff)
	}
}

func TestWrongRowsNameLineAndColumn(t *testing.T) {
	row := func(change func([]string)) string {
		cells := strings.Split("node00,bm,8,0.8,8gi,3,p,3,"+idA+",1489746275,1489746528,source4.mp4", ",")
		change(cells)
		return head + strings.Join(cells, ",") + "\n"
	}
	for text, want := range map[string]string{
		row(func(c []string) { c[2] = "many" }):        `line 2: column Concurrency: "many"`,
		row(func(c []string) { c[3] = "-1" }):          "line 2: column CPU",
		row(func(c []string) { c[4] = "8xi" }):         "line 2: column Memory",
		row(func(c []string) { c[9] = "yesterday" }):   "line 2: column TimeIn",
		row(func(c []string) { c[10] = "1489746274" }): "line 2: column TimeOut: the job ends 1s before it begins",
		head + "node00,bm,8\n":                         "line 2: 3 columns, want 12",
		strings.TrimSpace(head) + ",Work\n" + strings.TrimSpace(row(func([]string) {})[len(head):]) + ",NaN\n": `line 2: column Work: "NaN": want a finite number`,
	} {
		if _, err := ReadTable(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

func TestTypesThatCannotBeReadBackAreRefused(t *testing.T) {
	for s, ok := range map[string]bool{"aws": true, "lxd5": true, "aws-16cx1": false, "": false, "a_b": false} {
		if err := CheckType(s); (err == nil) != ok {
			t.Errorf("type %q: %v", s, err)
		}
	}
}

func TestMemoryIsRoundedUpAndPrintedShort(t *testing.T) {
	for text, want := range map[string]unit.Bytes{"0.8Gi": 858993460, "8gi": 8 << 30, "512mi": 512 << 20, "1000": 1000, "1.5G": 1.5e9} {
		got, err := parseMemory(text)
		if err != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", text, got, err, want)
		}
		if again, err := parseMemory(formatMemory(got)); err != nil || again != got {
			t.Errorf("%q prints as %q, which is %d", text, formatMemory(got), again)
		}
	}
	if got := formatMemory(858993460); got != "0.8gi" {
		t.Errorf("0.8Gi prints as %q", got)
	}
}

func FuzzReadTable(f *testing.F) {
	f.Add(head + "node00,bm,8,0.8,8gi,3,p,3," + idA + ",1489746275,1489746528,source4.mp4\n")
	f.Add("node01,aws,16cx1,4,2.5,1gi,0,x,0," + idA + ",1,2,s\n")
	f.Fuzz(func(t *testing.T, text string) {
		all, err := ReadTable(strings.NewReader(text))
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := WriteTable(&b, all); err != nil {
			t.Fatal(err)
		}
		Options(Waves(all))
	})
}
