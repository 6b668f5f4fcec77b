package submission

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"tenon.sh/tenon/internal/lab/archive"
	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/report"
	"tenon.sh/tenon/internal/lab/report/synthetic"
	"tenon.sh/tenon/internal/model/unit"
)

var private = Private{Words: []string{"host-of-alice", "alice", "al"}}

// secret is a text that contains everything that must not leave the machine.
const secret = "alice@host-of-alice:/home/alice/films"

// fill gives each field of v a value that is not zero. Texts are secret.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(secret)
	case reflect.Int, reflect.Int64:
		v.SetInt(1)
	case reflect.Uint64:
		v.SetUint(1)
	case reflect.Float64:
		v.SetFloat(1)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.SetMapIndex(key, value)
	case reflect.Pointer:
		if v.Type().Elem().Kind() == reflect.Struct && !strings.Contains(v.Type().String(), "hdrhistogram") {
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		}
	case reflect.Struct:
		switch v.Addr().Interface().(type) {
		case *time.Time:
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
		case *unit.CPUSet:
			v.Set(reflect.ValueOf(unit.CPUSetOf(1)))
		default:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		}
	}
}

// TestASubmissionHasTheseFieldsOnly sets each field of the records of an
// experiment, and compares the fields of the submission with a list. So a new
// field of a record stays out of submissions until a developer adds it to the
// list.
func TestASubmissionHasTheseFieldsOnly(t *testing.T) {
	var e colocation.Experiment
	var r colocation.Run
	fill(reflect.ValueOf(&e).Elem())
	fill(reflect.ValueOf(&r).Elem())
	e.Versions = map[string]string{"nginx": "1.28.0", "other": secret}
	cleanE, cleanR := experimentOf(e, private), runOf(r)
	got := strings.Join(slices.Concat(fieldsOf("experiment", cleanE), fieldsOf("run", cleanR)), "\n") + "\n"
	synthetic.CheckGolden(t, "fields.txt", []byte(got))
	// The names of modes are words of the lab, and the record checks them.
	// Therefore they cannot be secret here.
	cleanE.Modes, cleanE.Ended, cleanE.Client, cleanR.Mode = nil, "", "", ""
	for name, v := range map[string]any{"experiment": cleanE, "run": cleanR} {
		if err := private.check(name, v); err != nil {
			t.Error(err)
		}
		if data, err := json.Marshal(v); err != nil || strings.Contains(string(data), "alice") {
			t.Errorf("%s names the user (%v): %s", name, err, data)
		}
	}
}

// TestASubmissionKeepsTheCauseOfAVoidRun checks that the analysis of a submission
// treats void runs as that of the experiment does, although it has no reasons.
func TestASubmissionKeepsTheCauseOfAVoidRun(t *testing.T) {
	for cause, reasons := range map[report.Cause][]string{
		report.Failed:     {"timeout errors: 3 requests were not answered in time", "only 90.0 % of the offered rate was answered, less than 99 %"},
		report.Disturbed:  {"the hypervisor kept 2.0 % of the tested CPUs' time (steal), more than 1 %", "no request was answered"},
		report.NotItsMode: {"alice has changed /etc/nginx"},
	} {
		clean := runOf(colocation.Run{Run: report.Run{Void: reasons}})
		if got := clean.VoidCause(); len(clean.Void) != 1 || got != cause {
			t.Errorf("%q becomes %q with the cause %q, want %q", reasons, clean.Void, got, cause)
		}
		if err := (Private{Words: []string{"service", "disturbed", "mode", "alice"}}).check("run", clean); err != nil {
			t.Error(err)
		}
	}
}

func TestPrivateTextsAreFound(t *testing.T) {
	for text, is := range map[string]bool{
		"/home/x/film.mp4": true, "input=/srv/a": true, "see ~/notes": true, "./a": true, `"/etc"`: true, "built by alice": true, "6.8.0-HOST-OF-ALICE": true,
		"root@web-1": true, "Debian GNU/Linux 13 (trixie)": false, "Intel(R) Xeon(R) Processor": false, "5.1.9-0+deb12u1": false, "algol": false,
		"malice": false, "alice2": false, "malice of ALICE": true, "built_by_alice": true,
		"CPU suppress at 65 % (tenon-65)": false, "schedutil": false,
	} {
		if got := private.find(text) != ""; got != is {
			t.Errorf("%q is private: %v", text, got)
		}
	}
	err := private.check("run", colocation.Run{Run: report.Run{Writes: []string{"cpu.max", "/sys/fs/cgroup/a"}}})
	if err == nil || !strings.Contains(err.Error(), "run.writes") || !strings.Contains(err.Error(), "a path") {
		t.Errorf("a path in the writes of a run: %v", err)
	}
}

// TestTheZoneOfATimeIsPrivate checks two times that reveal the zone of the
// machine: one with an offset, and one with the local location.
func TestTheZoneOfATimeIsPrivate(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 500, time.UTC)
	for name, zone := range map[string]*time.Location{"an offset": time.FixedZone("", 3600), "no offset": time.FixedZone("GMT", 0)} {
		e := colocation.Experiment{Experiment: report.Experiment{Header: report.Header{Started: at.In(zone)}}}
		if err := private.check("experiment", e); err == nil || !strings.Contains(err.Error(), "experiment.started") {
			t.Errorf("%s: %v", name, err)
		}
		clean := experimentOf(e, private)
		if text, err := json.Marshal(clean.Started); err != nil || string(text) != `"2026-03-01T12:00:00Z"` {
			t.Errorf("%s: a submission has %s (%v)", name, text, err)
		}
		if err := private.check("experiment", clean); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestANameThatTheProgramUsesRefusesNothing uses names of machines and users
// that are also words of the protocol and of the records. The submissions must
// succeed.
func TestANameThatTheProgramUsesRefusesNothing(t *testing.T) {
	taken := Private{Words: []string{
		"tenon", "nginx", "ffmpeg", "ten", "pod", "pods", "service", "work", "default", "exclusive", "requests", "void", "time", "waiting", "host",
	}}
	if err := Fixed().Fits(taken); err != nil {
		t.Errorf("before the first run: %v", err)
	}
	dir := experiment(t, func(_ *Protocol, e *colocation.Experiment) {
		e.Machine.Kernel, e.Machine.OS = "6.12.0-pod", "Debian GNU/Linux 13 (trixie)"
	})
	b, err := Make(dir, taken)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b.files[report.ExperimentFile])
	if strings.Contains(text, "6.12.0-pod") || !strings.Contains(text, `"kernel": "(withheld)"`) || !strings.Contains(text, "trixie") {
		t.Errorf("facts of the machine:\n%s", text)
	}
	p := Fixed()
	p.Hypotheses[0].Name = "as on the host of a user"
	if err := p.Fits(taken); err == nil || !strings.Contains(err.Error(), "protocol.hypotheses.name") {
		t.Errorf("a text that is not fixed: %v", err)
	}
}

var runs = sync.OnceValue(func() []report.Run {
	return synthetic.Runs(synthetic.Experiment(2, Fixed().Modes...), 0.02)
})

// experiment writes an experiment into a folder. The experiment follows the
// protocol, and its runs are invented.
func experiment(t *testing.T, change func(*Protocol, *colocation.Experiment)) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "results")
	p := Fixed()
	e := colocation.Experiment{Experiment: synthetic.Experiment(2, p.Modes...)}
	e.Modes, e.Blocks, e.Looks, e.Duration, e.Margin, e.LoadPercent, e.Ended = p.Modes, p.Blocks, []int{p.Blocks}, p.Duration, p.Margin, p.Load, report.EndTime
	e.Command, e.Input, e.Caveats = []string{secret}, secret, []string{secret}
	e.Started = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	written := e.Started.Add(-time.Minute)
	if change != nil {
		change(&p, &e)
	}
	if err := p.Write(dir, written); err != nil {
		t.Fatal(err)
	}
	if err := report.Create(dir, &e); err != nil {
		t.Fatal(err)
	}
	log, err := os.ReadFile(filepath.Join("testdata", "run.hlog")) // the addresses in it must go
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range runs() {
		r.Writes, r.Warnings = []string{secret}, []string{secret}
		if i == 3 {
			r.Void = []string{secret}
		}
		if err := report.SaveRun(dir, &colocation.Run{Run: r}); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "runs", fmt.Sprintf("%03d-%s.hlog", r.Index, r.Mode)), log, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestASubmissionIsReadLikeAnExperiment makes a submission of an experiment,
// and reads it back. The numbers must be the same, and the submission must
// contain nothing private.
func TestASubmissionIsReadLikeAnExperiment(t *testing.T) {
	dir := experiment(t, nil)
	b, err := Make(dir, private)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{b.Name(), `"cpu_model"`, "A/A gate", "experiment.machine.kernel", "run.latency.p99_us", "1 of them void", "Not in it: names of the machine"} {
		if !strings.Contains(strings.Join(strings.Fields(b.Shown()), " "), want) {
			t.Errorf("what is shown lacks %q:\n%s", want, b.Shown())
		}
	}
	path, err := b.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := Check(path); err != nil {
		t.Errorf("the submission is refused: %v", err)
	}
	before := colocation.Combine([]string{dir}, report.Tenon, Check)
	after := colocation.Combine([]string{path}, report.Tenon, Check)
	if len(after.Included) != 1 || !slices.Equal(before.Rows, after.Rows) || len(after.Notes) == 0 {
		t.Errorf("the submission gives\n%+v\nthe experiment\n%+v", after, before)
	}
	both := colocation.Combine([]string{dir, path}, report.Tenon, Check)
	if len(both.Included) != 1 || !slices.Equal(both.Excluded, []string{path + ": it is the same experiment as " + dir}) || !slices.Equal(before.Rows, both.Rows) {
		t.Errorf("the experiment and its submission count twice: %q, left out %q", both.Included, both.Excluded)
	}
	for name, data := range b.files {
		for _, word := range []string{"alice", "/home", "127.0.0.1"} {
			if strings.Contains(string(data), word) {
				t.Errorf("%s contains %q", name, word)
			}
		}
	}
	again, err := Make(dir, private)
	if err != nil || again.Name() != b.Name() {
		t.Errorf("the same results give %s and %s (%v)", b.Name(), again.Name(), err)
	}
}

func TestAChangedSubmissionIsRefused(t *testing.T) {
	b, err := Make(experiment(t, nil), private)
	if err != nil {
		t.Fatal(err)
	}
	for name := range b.files {
		if strings.HasSuffix(name, "tenon.json") {
			b.files[name] = []byte(strings.Replace(string(b.files[name]), `"block": 1`, `"block": 2`, 1))
		}
	}
	path, err := b.Write(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if m := colocation.Combine([]string{path}, report.Tenon, Check); len(m.Included) != 0 || len(m.Excluded) != 1 || !strings.Contains(m.Excluded[0], "it was changed") {
		t.Errorf("%+v", m)
	}
}

func TestOnlyTheProtocolIsSubmitted(t *testing.T) {
	for want, change := range map[string]func(*Protocol, *colocation.Experiment){
		"was changed":                func(p *Protocol, _ *colocation.Experiment) { p.Hypotheses[0].Limit = 2 },
		"this version of tenon has":  func(p *Protocol, _ *colocation.Experiment) { p.Version = 99 },
		"did not run by protocol":    func(_ *Protocol, e *colocation.Experiment) { e.Blocks = 12 },
		"after the experiment began": func(_ *Protocol, e *colocation.Experiment) { e.Started = e.Started.Add(-time.Hour) },
		"with the loop of the lab":   func(_ *Protocol, e *colocation.Experiment) { e.Tenond = map[report.Mode]string{report.Tenon: "tenond"} },
	} {
		if _, err := Make(experiment(t, change), private); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want an error with %q, got %v", want, err)
		}
	}
	dir := experiment(t, nil)
	if err := os.Remove(filepath.Join(dir, ProtocolFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := Make(dir, private); err == nil || !strings.Contains(err.Error(), "only an experiment that tenon lab submit ran") {
		t.Errorf("without a protocol: %v", err)
	}
	if err := Check(filepath.Join(dir, "runs")); err != nil {
		t.Errorf("the folder of an experiment is checked as a submission: %v", err)
	}
	if err := archive.WriteFile(filepath.Join(dir, "x.tar.zst"), map[string][]byte{"a": []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	if err := Check(filepath.Join(dir, "x.tar.zst")); err == nil {
		t.Error("an archive without a manifest passes")
	}
}
