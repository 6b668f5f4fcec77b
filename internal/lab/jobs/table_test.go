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

// TestTheOutputOfAFailedJobDoesNotSpoilTheTable quotes what ffmpeg writes: each
// progress line ends with CR, and names are in any encoding.
func TestTheOutputOfAFailedJobDoesNotSpoilTheTable(t *testing.T) {
	at := time.Unix(1489746275, 0).UTC()
	j := Job{Host: "a", Type: "quota", Concurrency: 1, In: at, Out: at, Source: "film\xff.mp4", Extra: Extra{Void: "exit status 1: frame=1\rframe=2\r\n\x00film\xff.mp4: \x1b[31mno space"}}
	var b bytes.Buffer
	if err := WriteTable(&b, []Job{j}); err != nil {
		t.Fatal(err)
	}
	got, err := ReadTable(&b)
	if err != nil || len(got) != 1 {
		t.Fatalf("%d jobs read back, %v", len(got), err)
	}
	if want := "exit status 1: frame=1 frame=2   film\ufffd.mp4:  [31mno space"; got[0].Extra.Void != want || got[0].Source != "film\ufffd.mp4" {
		t.Errorf("source %q, void %q, want %q", got[0].Source, got[0].Extra.Void, want)
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
		strings.TrimSpace(head) + ",Work\n" + strings.TrimSpace(row(func([]string) {})[len(head):]) + ",NaN\n": `line 2: column Work: "NaN": want a number from 0 to 1e+18`,
	} {
		if _, err := ReadTable(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// TestTextThatIsNoTableIsRefused reads tables as spreadsheets write them. A byte order
// mark is no error. All other texts are errors: they would be read as wrong rows.
func TestTextThatIsNoTableIsRefused(t *testing.T) {
	row := "node00,bm,8,0.8,8gi,3,p,3," + idA + ",1489746275,1489746528,source4.mp4\n"
	for _, text := range []string{"\ufeff" + head + row, "\ufeff" + row, strings.ReplaceAll(head+row, "\n", "\r\n")} {
		if all, err := ReadTable(strings.NewReader(text)); err != nil || len(all) != 1 || all[0].Host != "node00" {
			t.Errorf("%q: %+v, %v", text, all, err)
		}
	}
	other := strings.Replace(head, "Concurrency,CPU", "CPU,Concurrency", 1)
	dashes := func(n int) string { return strings.Replace(row, ",bm,", ",bm"+strings.Repeat(",x", n)+",", 1) }
	for text, want := range map[string]string{
		strings.ReplaceAll(head+row, "\n", "\r"):                "line 1 ends with CR alone",
		head + strings.ReplaceAll(row+row, "\n", "\r"):          "line 2 ends with CR alone",
		strings.ReplaceAll(head+row, ",", ";"):                  `separated by ";": want commas`,
		strings.ReplaceAll(row, ",", "\t"):                      `separated by "\t": want commas`,
		"\xff\xfeH\x00o\x00s\x00t\x00":                          "not text in UTF-8",
		other + row:                                             "line 1: the header has other columns, or another order: want Host,Type",
		dashes(3):                                               "15 columns, want 12, or up to 2 more",
		strings.TrimSpace(row) + ",more\n":                      "13 columns, want 12",
		head + strings.Replace(row, "bm", "b\x1b[31mm", 1):      "line 2: column Type: \"b\\x1b[31mm\": want text without control characters",
		head + strings.Replace(row, "node00", "no\u0085de", 1):  "line 2: column Host",
		head + strings.Replace(row, ",bm,", ",,", 1):            "line 2: column Type: it is empty",
		head + strings.Replace(row, ",0.8,", ",none,", 1):       "line 2: column CPU: cpu amount \"none\": want a number of CPUs such as 2, 1.5 or 500m; 0 for no limit",
		head + strings.Replace(row, ",0.8,", ",0.0001,", 1):     "line 2: column CPU: cpu amount \"0.0001\": want at least a thousandth of a CPU, or 0 for no limit",
		head + strings.Replace(row, "1489746275", "2017-03", 1): "line 2: column TimeIn: \"2017-03\": want whole seconds since 1970",
	} {
		if all, err := ReadTable(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, error %v, want %q", text, all, err, want)
		}
	}
}

// TestColumnsOfTheLabAreChecked reads values that no lab writes.
func TestColumnsOfTheLabAreChecked(t *testing.T) {
	for column, values := range map[string][]string{
		"Strategy": {"foo"}, "Threads": {"-1", "x"}, "Block": {"-99"}, "Periods": {"-1", "x"}, "PeakMemory": {"-1"}, "TimeInNs": {"-1", "1e9"},
		"Work": {"-3", "x"}, "CPUSeconds": {"-1", "NaN", "1e300"}, "LateSeconds": {"x"}, "LocalJobs": {"-1"}, "Slice": {"zz"},
	} {
		for _, value := range values {
			text := strings.TrimSpace(head) + "," + column + "\nnode00,bm,8,0.8,8gi,3,p,3," + idA + ",1489746275,1489746528,source4.mp4," + value + "\n"
			_, err := ReadTable(strings.NewReader(text))
			if err == nil || !strings.Contains(err.Error(), "line 2: column "+column) || strings.Contains(err.Error(), "strconv") {
				t.Errorf("%s %s: error %v", column, value, err)
			}
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
