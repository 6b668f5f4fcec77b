package wrk

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"tenon.sh/tenon/internal/lab/load"
	"tenon.sh/tenon/internal/lab/load/socket"
	"tenon.sh/tenon/internal/model/unit"
)

// The outputs in testdata come from wrk 4.1. Only original.txt does not: it
// was published with the original experiment.
func TestParseReadsTheWholeOutput(t *testing.T) {
	for name, want := range map[string]Result{
		"original": {
			URL: "http://192.168.2.94:8000/", Length: time.Minute, Threads: 6, Connections: 54,
			ThreadLatency: Stats{402.18, 1070, 59560, 99.83},
			ThreadRate:    Stats{24220, 1120, 30580, 74.15},
			Latency:       load.Latency{P50: 343, P75: 402, P90: 523, P99: 786, Mean: 402.18, Max: 59560},
			Requests:      8686569, Bytes: 6.88 * (1 << 30), RequestRate: 144537.08, TransferRate: 117.16 * (1 << 20),
		},
		"good": {
			URL: "http://127.0.0.1:8000/", Length: 3100 * time.Millisecond, Threads: 6, Connections: 54,
			ThreadLatency: Stats{601.01, 655.70, 20100, 98.73},
			ThreadRate:    Stats{16160, 2440, 34160, 96.17},
			Latency:       load.Latency{P50: 543, P75: 593, P90: 668, P99: 1940, Mean: 601.01, Max: 20100},
			Requests:      293945, Bytes: 234.91 * (1 << 20), RequestRate: 94832.23, TransferRate: 75.79 * (1 << 20),
		},
		"connect": {
			URL: "http://127.0.0.1:8000/", Length: 2 * time.Second, Threads: 2, Connections: 54,
			ThreadLatency: Stats{735.37, 1690, 31150, 92.20},
			ThreadRate:    Stats{23370, 5670, 41510, 72.50},
			Latency:       load.Latency{P50: 308, P75: 377, P90: 2060, P99: 4910, Mean: 735.37, Max: 31150},
			Requests:      93115, Bytes: 74.42 * (1 << 20), RequestRate: 46500.93, TransferRate: 37.16 * (1 << 20),
			SocketErrors: SocketErrors{Connect: 30},
			Void:         []string{"socket errors: connect 30: wrk could not establish connections: 30 of 54 are missing, so the load was not the one asked for"},
		},
		"read": {
			URL: "http://127.0.0.1:8000/", Length: 2100 * time.Millisecond, Threads: 2, Connections: 4,
			ThreadLatency: Stats{254.29, 289.81, 4910, 89.37},
			ThreadRate:    Stats{7860, 816.08, 8750, 69.05},
			Latency:       load.Latency{P50: 174, P75: 346, P90: 560, P99: 1310, Mean: 254.29, Max: 4910},
			Requests:      32817, Bytes: 1.47 * (1 << 20), RequestRate: 15628.20, TransferRate: 714.70 * (1 << 10),
			SocketErrors: SocketErrors{Read: 5466},
			Void:         []string{"socket errors: read 5466: the service closed connections before its answer was complete"},
		},
		"timeout": {
			URL: "http://127.0.0.1:8000/", Length: 4010 * time.Millisecond, Threads: 2, Connections: 4,
			ThreadRate: Stats{1, 0, 1, 100},
			Requests:   12, Bytes: 480, RequestRate: 2.99, TransferRate: 119.70,
			SocketErrors: SocketErrors{Timeout: 12},
			Void:         []string{"socket errors: timeout 12: requests had no answer within wrk's time-out (2 s by default)"},
		},
		"status": {
			URL: "http://127.0.0.1:8000/e500", Length: 2 * time.Second, Threads: 1, Connections: 2,
			ThreadLatency: Stats{391.49, 1410, 22310, 94.73},
			ThreadRate:    Stats{12290, 3980, 17410, 55},
			Latency:       load.Latency{P50: 77, P75: 118, P90: 843, P99: 4920, Mean: 391.49, Max: 22310},
			Requests:      24428, Bytes: 7.90 * (1 << 20), RequestRate: 12209.09, TransferRate: 3.95 * (1 << 20),
			NonSuccess: 24428,
			Void:       []string{"24428 of 24428 answers had a status other than 2xx or 3xx"},
		},
		"silent": {
			URL: "http://127.0.0.1:8000/", Length: 3010 * time.Millisecond, Threads: 2, Connections: 4,
			Void: []string{"no request was answered"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			output, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Parse(string(output))
			if err != nil {
				t.Fatal(err)
			}
			want.Output = string(output)
			if diff := cmp.Diff(want, *got, cmpopts.EquateApprox(1e-9, 1)); diff != "" {
				t.Errorf("want -, got +:\n%s", diff)
			}
		})
	}
}

// TestErrorsAreExplainedByTheirKind reads real outputs. Only connections that fail
// have to do with the limits of the client.
func TestErrorsAreExplainedByTheirKind(t *testing.T) {
	limits := socket.Limits{TWReuse: "2", PortRange: "32768 60999", Somaxconn: "128", OpenFiles: "1024"}
	const reuse, closes, slow, status, once = "sysctl -w net.ipv4.tcp_tw_reuse=1", "keepalive_requests", "--timeout", "error status", "curl -v http://127.0.0.1:8000/"
	for name, c := range map[string]struct {
		change func(*Result)
		want   []string
	}{
		"connect":              {want: []string{reuse}},
		"connect, all of them": {func(r *Result) { r.Requests = 0 }, []string{once, reuse}},
		"read":                 {want: []string{closes}},
		"timeout":              {want: []string{slow}},
		"status":               {want: []string{status}},
		"good":                 {},
	} {
		file, _, _ := strings.Cut(name, ",")
		output, err := os.ReadFile(filepath.Join("testdata", file+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := Parse(string(output))
		if err != nil {
			t.Fatal(err)
		}
		if c.change != nil {
			c.change(r)
		}
		r.explain(limits)
		hints := strings.Join(r.Hints, "\n")
		for _, hint := range []string{reuse, closes, slow, status, once} {
			if got, want := strings.Contains(hints, hint), slices.Contains(c.want, hint); got != want {
				t.Errorf("%s: hint %q: %v, want %v: %q", name, hint, got, want, r.Hints)
			}
		}
	}
}

// TestReadOutputTakesWhatUsersKeep reads outputs that Parse refuses, because lines
// are missing or two lines are one.
func TestReadOutputTakesWhatUsersKeep(t *testing.T) {
	for name, c := range map[string]struct {
		missing []string
		p99     float64
		rate    float64
	}{
		"original":         {nil, 786, 144537.08},
		"no-latency":       {[]string{"50%", "75%", "90%", "99%"}, 0, 3028.94},
		"published-shared": {[]string{"Running"}, 900, 212350.15},
	} {
		f, err := os.Open(filepath.Join("testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		r, err := ReadOutput(f)
		_ = f.Close()
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if !slices.Equal(r.Missing, c.missing) || r.Latency.P99 != c.p99 || r.RequestRate != c.rate {
			t.Errorf("%s: missing %q, P99 %v µs, %v requests/s; want %+v", name, r.Missing, r.Latency.P99, r.RequestRate, c)
		}
		var text strings.Builder
		if err := r.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if unknown := strings.Count(text.String(), "     - ") + strings.Count(text.String(), "unknown"); unknown != len(c.missing) {
			t.Errorf("%s: %d figures are shown as not known, want %d:\n%s", name, unknown, len(c.missing), text.String())
		}
	}
}

// TestReadOutputRefusesWhatIsNoRun gives one reason for each input that is no
// output of one run.
func TestReadOutputRefusesWhatIsNoRun(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("testdata", name+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, c := range map[string]struct{ output, want string }{
		"nothing":      {"", "no run of wrk 4 is in it"},
		"another tool": {"Requests/sec:\t12.3\n", "no run of wrk 4 is in it"},
		"refused":      {read("refused"), "Connection refused"},
		"two runs":     {read("good") + read("good"), "2 runs"},
		"too long":     {strings.Repeat("x\n", maxOutput), "more than"},
		"odd figure":   {strings.Replace(read("good"), "601.01us", "601.01ns", 1), `"601.01ns"`},
	} {
		if r, err := ReadOutput(strings.NewReader(c.output)); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %+v, error %v; want one line with %s", name, r, err, c.want)
		}
	}
}

func TestParseReadsEveryUnit(t *testing.T) {
	good, err := os.ReadFile("testdata/original.txt")
	if err != nil {
		t.Fatal(err)
	}
	for printed, want := range map[string]float64{"0.00us": 0, "999.99us": 999.99, "1.50ms": 1500, "2.00s": 2e6, "1.50m": 90e6, "1.00h": 3600e6} {
		r, err := Parse(strings.Replace(string(good), "786.00us", printed, 1))
		if err != nil || r.Latency.P99 != want {
			t.Errorf("P99 of %s: %v µs, error %v; want %v", printed, r.Latency.P99, err, want)
		}
	}
	for printed, want := range map[string]float64{"7.00": 7, "24.22k": 24220, "1.50M": 1.5e6, "2.00G": 2e9} {
		r, err := Parse(strings.Replace(string(good), "24.22k", printed, 1))
		if err != nil || r.ThreadRate.Mean != want {
			t.Errorf("rate of %s: %v, error %v; want %v", printed, r.ThreadRate.Mean, err, want)
		}
	}
	for printed, want := range map[string]float64{"0.00B": 0, "1.50KB": 1536, "2.00TB": 2 << 40} {
		r, err := Parse(strings.Replace(string(good), "6.88GB", printed, 1))
		if err != nil || r.Bytes != want {
			t.Errorf("%s read: %v, error %v; want %v", printed, r.Bytes, err, want)
		}
	}
}

func TestParseRefusesWhatIsNotWhole(t *testing.T) {
	good, err := os.ReadFile("testdata/original.txt")
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ output, want string }{
		"nothing":         {"", `no line with "Running"`},
		"cut off":         {string(good[:len(good)/2]), `no line with "99%"`},
		"no distribution": {strings.ReplaceAll(string(good), "99%  ", "99.5%"), `no line with "99%"`},
		"unknown unit":    {strings.Replace(string(good), "786.00us", "786.00ns", 1), `number "786.00ns"`},
		"no number":       {strings.Replace(string(good), "786.00us", "us", 1), `number "us"`},
		"refused":         {"unable to connect to 127.0.0.1:8000 Connection refused\n", `no line with "Running"`},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := Parse(c.output); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v; want one with %s", err, c.want)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txt") // some of them only ReadOutput takes
	if err != nil || len(files) == 0 {
		f.Fatal("no captured outputs", err)
	}
	for _, file := range files {
		output, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(output))
	}
	f.Fuzz(func(t *testing.T, output string) {
		r, err := ReadOutput(strings.NewReader(output))
		if whole, strict := Parse(output); strict == nil && err == nil && whole.Latency != r.Latency {
			t.Errorf("the two readers differ: %+v and %+v", whole, r)
		}
		if err != nil {
			return
		}
		if err := r.WriteText(io.Discard); err != nil {
			t.Error(err)
		}
		for _, v := range []float64{r.Latency.P50, r.Latency.P99, r.Latency.Max, r.RequestRate, r.Bytes, float64(r.Length), float64(r.Requests)} {
			if !(v >= 0) {
				t.Errorf("a figure is %v", v)
			}
		}
	})
}

func TestArgsAreTheOriginalsScaledToTheCPUs(t *testing.T) {
	for name, c := range map[string]struct {
		config Config
		want   string
	}{
		"original":  {Config{URL: "http://a/", Duration: time.Minute}, "-t6 -c54 -d60s --latency http://a/"},
		"one CPU":   {Config{URL: "http://a/", Duration: time.Minute, CPUs: unit.CPUSetOf(1)}, "-t1 -c9 -d60s --latency http://a/"},
		"many CPUs": {Config{URL: "http://a/", Duration: 1500 * time.Millisecond, CPUs: unit.CPUSetOf(0, 1, 2, 3, 4, 5, 6, 7)}, "-t6 -c54 -d2s --latency http://a/"},
		"own":       {Config{URL: "http://a/", Duration: time.Second, Threads: 2, Connections: 5}, "-t2 -c5 -d1s --latency http://a/"},
	} {
		if got := strings.Join(c.config.Args(), " "); got != c.want {
			t.Errorf("%s: %s; want %s", name, got, c.want)
		}
	}
}

func TestTheRealWrkIsUnderstood(t *testing.T) {
	path, err := exec.LookPath("wrk")
	if err != nil {
		if os.Getenv("TENON_TEST_STRICT") == "1" {
			t.Fatalf("strict: this test must run here: %v", err)
		}
		t.Skip(err)
	}
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(s.Close)
	c := Config{URL: s.URL, Duration: time.Second, Threads: 1, Connections: 2}
	text, err := exec.Command(path, c.Args()...).Output()
	if err != nil {
		t.Fatal(err)
	}
	if r, err := Parse(string(text)); err != nil || r.Requests == 0 || r.Latency.P99 <= 0 || len(r.Void) > 0 {
		t.Errorf("%+v, %v\n%s", r, err, text)
	}
}
