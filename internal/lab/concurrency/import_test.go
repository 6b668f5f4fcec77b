package concurrency

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/jobfiles"
	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/model/unit"
)

const (
	idA = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	idB = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
)

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestFoldersOfLogsBecomeJobs reads the logs of two nodes. One has logs of
// Docker and a list of links. The other one has logs of the Container Runtime
// Interface, whose names contain the name of the job.
func TestFoldersOfLogsBecomeJobs(t *testing.T) {
	dir := t.TempDir()
	docker := func(sec string, text string) string {
		return `{"log":"` + text + `\n","stream":"stderr","time":"2026-03-17T10:24:` + sec + `Z"}` + "\n"
	}
	write(t, filepath.Join(dir, "stats", "node00", "links.txt"), "aws-16cx1-2-0.8-1gi-0-abcde_default_transcoder-0-"+idA+".log\ncoredns-x_kube-system_dns-"+idB+".log\n")
	write(t, filepath.Join(dir, "stats", "node00", "var", idA, idA+"-json.log"), docker("05", "ffmpeg")+docker("06", "Input #0, mov, from '/data/source1.mp4':")+docker("45", "frame= 1253 fps=30 Lsize= 9120kB"))
	write(t, filepath.Join(dir, "stats", "node00", "var", idB, idB+"-json.log"), docker("05", "listening"))
	write(t, filepath.Join(dir, "containers", "bm-1-2-1gi-0-fghij_default_transcoder-0-"+idB+".log"),
		"2026-03-17T10:24:05Z stderr F Input #0, mov, from '/data/source2.mp4':\n2026-03-17T10:24:15Z stderr F frame= 10 Lsize= 90KiB\n")

	in, err := jobfiles.ReadPaths([]string{filepath.Join(dir, "stats"), filepath.Join(dir, "containers")})
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Jobs) != 2 || in.Logs != 2 || in.Tables != 0 || in.Passed[jobfiles.OtherPod].Count != 1 {
		t.Fatalf("%+v", in)
	}
	if j := in.Jobs[0]; j.Host != "node00" || j.Type != "aws-16cx1" || j.Duration() != 40*time.Second || j.Source != "source1.mp4" || j.Extra.Work.Or(0) != 1253 {
		t.Errorf("job of Docker: %+v", j)
	}
	if j := in.Jobs[1]; j.Host != "containers" || j.CPU != 2000 || j.Duration() != 10*time.Second {
		t.Errorf("job of CRI: %+v", j)
	}
}

// TestAnImportPassesOverLogsThatSayNothing imports the logs of a node in use. A
// pod that waits has an empty log, and a link may still exist after its log was
// removed. The calibration job has another amount of work than the jobs of the
// runs.
func TestAnImportPassesOverLogsThatSayNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "node00")
	name := func(i int) string {
		return filepath.Join(dir, fmt.Sprintf("unbounded-1-0-0-%d-abcde_lab_transcoder-%d-%s.log", i, i, idA))
	}
	marked := func(run int) string {
		return fmt.Sprintf("2026-03-17T10:24:05Z stderr F tenon-lab start due=1 strategy=unbounded block=1 run=%d source=a cpu\n", run) +
			"2026-03-17T10:24:15Z stderr F tenon-lab end status=0 cpu\n"
	}
	write(t, name(0), "")
	write(t, name(1), marked(0))
	write(t, name(2), marked(1))
	if err := os.Symlink(filepath.Join(dir, "removed"), name(3)); err != nil {
		t.Fatal(err)
	}
	in, err := jobfiles.ReadPaths([]string{dir})
	if err != nil || len(in.Jobs) != 1 || in.Jobs[0].Extra.Run != 1 || in.Logs != 1 || in.Passed[jobfiles.Silent].Count != 3 || len(in.Passed) != 1 {
		t.Errorf("%+v, %v", in, err)
	}
}

// TestAnImportCountsTheBlocksOfItsFiles reads a table of the lab, whose rows name
// their blocks, and a published one, whose rows do not.
func TestAnImportCountsTheBlocksOfItsFiles(t *testing.T) {
	once := func(w []string) bool { return strings.Contains(strings.Join(w, "\n"), "Each cell ran once") }
	for _, blocks := range []int{0, 3} {
		var all []jobs.Job
		for block := range max(blocks, 1) {
			for _, j := range amazon() {
				if blocks > 0 {
					j.Extra.Block = block + 1
				}
				j.In, j.Out = j.In.AddDate(0, block, 0), j.Out.AddDate(0, block, 0)
				all = append(all, j)
			}
		}
		var table strings.Builder
		if err := jobs.WriteTable(&table, all); err != nil {
			t.Fatal(err)
		}
		name := filepath.Join(t.TempDir(), "jobs.csv")
		write(t, name, table.String())
		in, err := jobfiles.ReadPaths([]string{name})
		if err != nil || in.Blocks() != max(blocks, 1) {
			t.Errorf("%d blocks: read %d, %v", blocks, in.Blocks(), err)
		}
		r := Analyse(Experiment{Header: report.Header{Blocks: in.Blocks()}, Imported: []string{name}}, in.Jobs)
		if once(r.Warnings) != (blocks == 0) || r.Options[0].Seconds.Blocks != max(blocks, 1) {
			t.Errorf("%d blocks: warnings %q, %d blocks in the first option", blocks, r.Warnings, r.Options[0].Seconds.Blocks)
		}
	}
}

func TestImportNamesWhatItCannotRead(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bad.csv"), "a,b,c\n")
	write(t, filepath.Join(dir, "empty", "README"), "no logs\n")
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "tables", "bad.csv"), "a,b,c\n")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "pipes"), 0o755), syscall.Mkfifo(filepath.Join(dir, "pipes", "jobs.csv"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		filepath.Join(dir, "bad.csv"): "line 1: 3 columns, want 12",
		filepath.Join(dir, "empty"):   "no job in it (other files: 1): want a table (*.csv), or a folder with links.txt or with logs named as below /var/log/containers, such as aws-4-2.5-1gi-0-",
		filepath.Join(dir, "none"):    "no such file",
		pipe:                          "neither a file nor a folder",
		filepath.Join(dir, "pipes"):   "jobs.csv: it is not a regular file",
		filepath.Join(dir, "tables"):  "bad.csv: read the table of jobs: line 1",
	} {
		if _, err := jobfiles.ReadPaths([]string{path}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", path, err, want)
		}
	}
}

// TestAJobIsImportedOnce gives a table twice, a row twice, two rows with the number
// of one job, and a table with the log from which it was made.
func TestAJobIsImportedOnce(t *testing.T) {
	dir := t.TempDir()
	table := func(name string, rows ...string) string {
		path := filepath.Join(dir, name)
		write(t, path, strings.Join(rows, "\n")+"\n")
		return path
	}
	row := func(index int, id string, in int) string {
		return fmt.Sprintf("node00,bm,2,2,1gi,%d,p,0,%s,%d,%d,s", index, id, in, in+60)
	}
	wave := table("wave.csv", row(0, idA, 1e9), row(1, idB, 1e9))
	logs := filepath.Join(dir, "node00")
	write(t, filepath.Join(logs, "bm-2-2-1gi-0-fghij_default_transcoder-0-"+idA+".log"), "2026-03-17T10:24:05Z stderr F a\n")
	for _, c := range []struct {
		paths []string
		want  string
	}{
		{[]string{wave, wave}, "wave.csv line 1 and " + wave + " line 1 are the same job"},
		{[]string{table("twice.csv", row(0, "a", 1e9), row(1, "b", 1e9), row(0, "a", 1e9))}, "twice.csv line 1 and " + filepath.Join(dir, "twice.csv") + " line 3 are the same job"},
		{[]string{table("number.csv", row(0, idA, 1e9), row(0, idB, 1e9))}, "line 2 are the same job (bm, Concurrency 2, CPU 2, JobID 0 on node00, begun at 1000000000)"},
		{[]string{wave, logs}, "wave.csv line 1 and " + logs},
	} {
		if _, err := jobfiles.ReadPaths(c.paths); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.paths, err, c.want)
		}
	}
	if in, err := jobfiles.ReadPaths([]string{wave, table("later.csv", row(0, "", 2e9), row(1, "", 2e9))}); err != nil || len(in.Jobs) != 4 {
		t.Errorf("a cell that ran twice: %+v, %v", in, err)
	}
}

func TestAnExperimentReadsBackAndIsNotOverwritten(t *testing.T) {
	dir := t.TempDir()
	all := amazon()
	if _, err := Create(dir, Experiment{Node: Node{16, 8}, Header: report.Header{Blocks: 1}}, all); err != nil {
		t.Fatal(err)
	}
	if _, err := Create(dir, Experiment{}, all); err == nil {
		t.Error("a second experiment was written into the folder of the first")
	}
	e, got, err := Load(dir)
	if err != nil || e.Kind != Kind || len(got) != len(all) {
		t.Fatalf("%+v, %d jobs, %v", e, len(got), err)
	}
	f, err := report.Kinds{Kind: Open}.Rebuild(dir)
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil || strings.Count(string(page), "<svg") < 5 || strings.Contains(string(page), "NaN") {
		t.Errorf("the page has %d pictures, or NaN in it (%v)", strings.Count(string(page), "<svg"), err)
	}
	var table strings.Builder
	if err := f.Page().WriteText(&table); err != nil || strings.Contains(table.String(), "NaN") {
		t.Errorf("%v\n%s", err, table.String())
	}
}

// TestAnImportReplacesNoFile gives the folder of the input, a folder with a link to
// a file elsewhere, and jobs that do not read back. Nothing may be written.
func TestAnImportReplacesNoFile(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	write(t, precious, "mine")
	write(t, filepath.Join(dir, "input", "jobs.csv"), "mine")
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "link"), 0o755), os.Symlink(precious, filepath.Join(dir, "link", "jobs.csv"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"input", "link"} {
		if _, err := Create(filepath.Join(dir, name), Experiment{}, amazon()); err == nil || !strings.Contains(err.Error(), "jobs.csv") {
			t.Errorf("%s: error %v, want one with the file", name, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, name, "jobs.csv")); err != nil || string(text) != "mine" {
			t.Errorf("%s: jobs.csv has %q (%v)", name, text, err)
		}
		if all, err := os.ReadDir(filepath.Join(dir, name)); err != nil || len(all) != 1 {
			t.Errorf("%s has %d files (%v), want 1", name, len(all), err)
		}
	}
	bad := amazon()
	bad[3].Out = bad[3].In.Add(-time.Minute)
	if _, err := Create(filepath.Join(dir, "new"), Experiment{}, bad); err == nil {
		t.Error("jobs that do not read back are saved")
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("a failed import leaves its folder")
	}
}

// TestEveryKeyIsDocumented checks that docs/result.md names every key.
func TestEveryKeyIsDocumented(t *testing.T) {
	text, err := os.ReadFile("../../../docs/result.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []any{Result{}, Option{}, Cause{}, Cliff{}, jobs.MemoryEffect{}, Comparison{}, VoidJob{}, Node{}} {
		typ := reflect.TypeOf(v)
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			if key != "" && !strings.Contains(string(text), key) {
				t.Errorf("docs/result.md does not name the key %s of %s", key, typ.Name())
			}
		}
	}
}

// amazonTable has published times of a job on a node of 8 cores and 16 CPUs.
// The columns are the CPU limit, the number of jobs that really ran beside each
// other, the seconds under a quota, and the seconds in pinned slices.
var amazonTable = []struct {
	limit         int
	quota, pinned []float64
}{
	{2000, []float64{88.5, 91.6, 96.7, 96.7}, []float64{59.0, 65.8, 77.1, 85.6}},
	{3000, []float64{60.0, 62.2, 63.9, 64.8}, []float64{39.2, 46.6, 52.4, 61.1}},
	{4000, []float64{44.0, 46.7, 48.2}, []float64{30.5, 39.1, 45.5}},
	{5000, []float64{34.7, 37.5, 39.3}, []float64{27.9, 34.6, 41.7}},
	{0, []float64{14.8, 26.2, 37.8}, nil},
}

func amazon() []jobs.Job {
	var all []jobs.Job
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	add := func(how string, limit, n int, seconds float64) {
		for i := range n {
			all = append(all, jobs.Job{
				Host: "node00", Type: how, Concurrency: n, CPU: unit.MilliCPU(limit), Memory: 2 << 30, Index: i, In: at,
				Out: at.Add(time.Duration(seconds * float64(time.Second))), Precision: time.Nanosecond,
			})
		}
		at = at.Add(time.Hour)
	}
	for _, row := range amazonTable {
		how := "quota"
		if row.limit == 0 {
			how = "unbounded"
		}
		for i, s := range row.quota {
			add(how, row.limit, i+1, s)
		}
		for i, s := range row.pinned {
			add("pinned", row.limit, i+1, s)
		}
	}
	return all
}

// TestPinningWinsOnAnEmptyNodeAndLosesOnAFullOne checks two conclusions from
// the published times. A job that runs alone is a third faster on exclusive
// cores. A node completes the most jobs an hour if jobs have no limit.
func TestPinningWinsOnAnEmptyNodeAndLosesOnAFullOne(t *testing.T) {
	r := Analyse(Experiment{Node: Node{16, 8}, Header: report.Header{Blocks: 1}}, amazon())
	ratio := map[[2]int]float64{}
	for _, c := range r.Comparisons {
		if c.Of == "quota" && c.To == "pinned" {
			ratio[[2]int{int(c.Limit), c.Jobs}] = 1 / float64(c.Seconds)
		}
	}
	for k, want := range map[[2]int]float64{{2000, 1}: 0.67, {3000, 1}: 0.65, {4000, 1}: 0.69, {3000, 4}: 0.94, {5000, 3}: 1.06} {
		if got := ratio[k]; got < want-0.006 || got > want+0.006 {
			t.Errorf("limit %dm, %d jobs: pinned / quota %.3f, want %.2f", k[0], k[1], got, want)
		}
	}
	a, err := r.Advise(jobs.Goal{}, 0.80)
	if err != nil || a.How != "unbounded" || a.Jobs != 3 || a.Hourly.Value < 285 || a.Hourly.Value > 287 {
		t.Errorf("most jobs an hour: %+v, %v", a, err)
	}
	if a, err = r.Advise(jobs.Goal{Shortest: true}, 0); err != nil || a.How != "unbounded" || a.Jobs != 1 {
		t.Errorf("shortest job: %+v, %v", a, err)
	}
	if a, err = r.Advise(jobs.Goal{Deadline: 30 * time.Second}, 0); err != nil || a.Jobs != 2 || a.How != "unbounded" {
		t.Errorf("done within 30 s: %+v, %v", a, err)
	}
	if a, err = r.Advise(jobs.Goal{Jobs: 200, Within: time.Hour}, 0); err != nil || a.Duration < 41*time.Minute || a.Duration > 43*time.Minute {
		t.Errorf("200 jobs: %+v, %v", a, err)
	}
	if _, err = r.Advise(jobs.Goal{Deadline: time.Second}, 0); !errors.Is(err, jobs.ErrNoOption) || !strings.Contains(err.Error(), "14.8 s") {
		t.Errorf("a deadline that nothing met: %v", err)
	}
	if _, err = r.Advise(jobs.Goal{Jobs: 5}, 0); err == nil {
		t.Error("a number of jobs without a time is accepted")
	}
}

// TestTiesNameTheSimplestWay checks ways that the measurement cannot
// distinguish. They must count as equal, and the way without a limit must come
// first.
func TestTiesNameTheSimplestWay(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	var all []jobs.Job
	for i, how := range []string{"quota", "unbounded"} {
		in := at.Add(time.Duration(i) * time.Hour)
		all = append(all, jobs.Job{Host: "n", Type: how, Concurrency: 1, CPU: unit.MilliCPU(2000 * (1 - i)), In: in, Out: in.Add(time.Duration(1000-i) * 100 * time.Millisecond)})
	}
	all[0].Out = all[0].Out.Add(-300 * time.Millisecond) // quota is 0.2 s faster
	a, err := Analyse(Experiment{}, all).Advise(jobs.Goal{}, 0)
	if err != nil || a.How != "unbounded" || len(a.Equal) != 1 || !strings.Contains(a.Text(), "cannot tell it from: quota") {
		t.Errorf("%+v, %v", a, err)
	}
	// In the table of the result another way has the higher figure.
	if !strings.HasSuffix(a.line(), "It is the simplest of 2 ways between which this measurement cannot decide.") {
		t.Errorf("%q does not say that there are others", a.line())
	}
}

// TestARunsVoidJobsAreOneLine checks that one line names all jobs that are void
// for the same reason.
func TestARunsVoidJobsAreOneLine(t *testing.T) {
	got := voidLines([]VoidJob{{"vm", "quota, 2 jobs", 1, "steal"}, {"vm", "quota, 2 jobs", 0, "steal"}, {"vm", "quota, 1 job", 0, "steal"}})
	want := []string{"2 jobs of quota, 2 jobs on vm: steal", "1 job of quota, 1 job on vm: steal"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
