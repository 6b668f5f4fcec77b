package submission

import (
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/colocation"
	"tenon.sh/tenon/internal/lab/report"
)

// experimentOf copies the parts of an experiment that a submission contains. It
// copies only the fields that it names. It does not copy the command line,
// paths, caveats, or the configuration of tenond.
func experimentOf(e colocation.Experiment, private Private) colocation.Experiment {
	m := e.Machine
	clean := report.Experiment{
		Header: report.Header{
			Schema: e.Schema, Started: e.Started.UTC().Truncate(time.Second), Version: private.withhold(e.Version), Modes: e.Modes, Blocks: e.Blocks, Ended: e.Ended,
			Seed: e.Seed, TestedCPUs: e.TestedCPUs, ClientCPUs: e.ClientCPUs,
			Machine: report.Machine{
				Kernel: private.withhold(m.Kernel), OS: private.withhold(m.OS), CPUModel: private.withhold(m.CPUModel), CPUs: m.CPUs, SMT: m.SMT,
				Virtualization: private.withhold(m.Virtualization), Emulated: m.Emulated, CgroupVersion: m.CgroupVersion, MemoryBytes: m.MemoryBytes,
				Governor: private.withhold(m.Governor),
			},
			Versions: map[string]string{},
		},
		Looks: e.Looks, Duration: e.Duration, Margin: e.Margin, Client: e.Client,
		OfferedRate: e.OfferedRate, LoadPercent: e.LoadPercent, BEProcesses: e.BEProcesses, BEThreads: e.BEThreads,
		SoloFramesPerSecond: e.SoloFramesPerSecond, SoloCPU: e.SoloCPU,
	}
	for _, mechanism := range m.Mechanisms {
		clean.Machine.Mechanisms = append(clean.Machine.Mechanisms, private.withhold(mechanism))
	}
	for _, program := range []string{"nginx", "ffmpeg"} {
		if v, known := e.Versions[program]; known {
			clean.Versions[program] = private.withhold(v)
		}
	}
	return colocation.Experiment{Experiment: clean, Siblings: e.Siblings, BatchRequest: e.BatchRequest}
}

// failedRequests replaces each kind of failed request.
const failedRequests = "requests"

// runOf copies the parts of a run that a submission contains: numbers only.
func runOf(r colocation.Run) colocation.Run {
	clean := report.Run{
		Index: r.Index, Block: r.Block, Mode: r.Mode, Length: r.Length, Warmup: r.Warmup, Latency: r.Latency, WithStalls: r.WithStalls, Requests: r.Requests,
		ClientLag: r.ClientLag, Spoiled: r.Spoiled, ClientCPU: r.ClientCPU, CPUPercent: r.CPUPercent, LSCPU: r.LSCPU, BECPU: r.BECPU,
		OtherCPU: r.OtherCPU, StealRatio: r.StealRatio, Frames: r.Frames, FramesPerS: r.FramesPerS, RunDelay: r.RunDelay,
		Timeslices: r.Timeslices, DelayPerRun: r.DelayPerRun, LSThrottled: r.LSThrottled, BEThrottled: r.BEThrottled, PSICPU: r.PSICPU,
	}
	if cause := r.VoidCause(); cause != report.NotVoid {
		clean.Discard(cause, string(cause)) // a reason may name programs of the owner
	}
	failed := 0
	for _, n := range r.Errors {
		failed += n
	}
	if failed > 0 {
		clean.Errors = map[string]int{failedRequests: failed}
	}
	return colocation.Run{Run: clean}
}

// Private contains the words that must not be in a submission: the names of the
// machine and of its users.
type Private struct{ Words []string }

// withheld replaces a fact of the machine that contains a private word.
const withheld = "(withheld)"

// aPath matches a path of a file: a slash at the beginning of a word.
var aPath = regexp.MustCompile(`(?:^|[\s"'=:(,])[~.]{0,2}/[^\s/]`)

// minLength is the minimum length of a private word. A shorter word would occur
// in too many other texts.
const minLength = 3

// find says what is private in a text, such as "a path", or returns "".
func (p Private) find(text string) string {
	if aPath.MatchString(text) {
		return "a path"
	}
	if strings.Contains(text, "@") {
		return "an address"
	}
	for _, w := range p.Words {
		// Directly before and after the word there is neither a letter nor a digit.
		word := `(^|[^\pL\p{Nd}])` + regexp.QuoteMeta(strings.ToLower(w)) + `($|[^\pL\p{Nd}])`
		if len(w) >= minLength && regexp.MustCompile(word).MatchString(strings.ToLower(text)) {
			return "the name of the machine or of a user"
		}
	}
	return ""
}

func (p Private) withhold(text string) string {
	if p.find(text) != "" {
		return withheld
	}
	return text
}

// check returns an error if a text in v is private, or if a time reveals the
// time zone of the machine. It checks every text that is not in fixedTexts. So
// it also checks fields that a later version adds.
func (p Private) check(name string, v any) error {
	var err error
	walk(reflect.ValueOf(v), name, func(path string, leaf reflect.Value) {
		if err != nil {
			return
		}
		if t, is := leaf.Interface().(time.Time); is && t.Location() != time.UTC {
			err = fmt.Errorf("%s is %v: it is not in UTC and tells the time zone of the machine", path, t)
		}
		if leaf.Kind() == reflect.String && !fixedTexts[leaf.String()] {
			if what := p.find(leaf.String()); what != "" {
				err = fmt.Errorf("%s is %.200q: it contains %s", path, leaf.String(), what)
			}
		}
	})
	return err
}

// fixedTexts are constants that this program writes into submissions on every
// machine, such as "nginx". So they reveal nothing, even if a user has such a name.
var fixedTexts = func() map[string]bool {
	all := map[string]bool{"nginx": true, "ffmpeg": true, client: true, failedRequests: true}
	for _, cause := range []report.Cause{report.Failed, report.Disturbed, report.NotItsMode} {
		all[string(cause)] = true
	}
	for _, end := range []report.End{report.EndPlanned, report.EndTime, report.EndHand, report.EndFailed} {
		all[string(end)] = true
	}
	walk(reflect.ValueOf(Fixed()), "protocol", func(_ string, leaf reflect.Value) {
		if leaf.Kind() == reflect.String {
			all[leaf.String()] = true
		}
	})
	return all
}()

// walk calls see for each value in v that is not zero and has no parts, such as a number.
func walk(v reflect.Value, path string, see func(string, reflect.Value)) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			walk(v.Elem(), path, see)
		}
	case reflect.Struct:
		if v.IsZero() {
			return
		}
		if v.NumField() == 0 || !v.Type().Field(0).IsExported() { // such as a time or a set of CPUs
			see(path, v)
			return
		}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case name == "-" || !f.IsExported():
			case f.Anonymous:
				walk(v.Field(i), path, see)
			default:
				walk(v.Field(i), path+"."+name, see)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			walk(v.Index(i), path, see)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			walk(k, path, see)
			walk(v.MapIndex(k), path, see)
		}
	default:
		if !v.IsZero() {
			see(path, v)
		}
	}
}

// fieldsOf lists the fields of v that are not zero.
func fieldsOf(name string, v any) []string {
	all := map[string]bool{}
	walk(reflect.ValueOf(v), name, func(path string, _ reflect.Value) { all[path] = true })
	return slices.Sorted(maps.Keys(all))
}
