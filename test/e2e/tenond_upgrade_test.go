package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// formerKeys are the keys of state files before their first version, by the keys
// of today.
var formerKeys = map[string]string{
	"selector": "ladder", "slo": "strain", "cpu_backoff": "giving", "cache_backoff": "squeeze", "allocations": "pins",
	"failures": "falls", "request": "asked",
}

// makeFormer rewrites a state file in the form before the first version.
func makeFormer(t *testing.T, from, to string) {
	t.Helper()
	text, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatal(err)
	}
	delete(v.(map[string]any), "version")
	if text, err = json.Marshal(withFormerKeys(v)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(from); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, text, 0o600); err != nil {
		t.Fatal(err)
	}
}

func withFormerKeys(v any) any {
	switch v := v.(type) {
	case map[string]any:
		all := map[string]any{}
		for k, below := range v {
			if former, renamed := formerKeys[k]; renamed {
				k = former
			}
			all[k] = withFormerKeys(below)
		}
		return all
	case []any:
		for i := range v {
			v[i] = withFormerKeys(v[i])
		}
	}
	return v
}

// TestAnUpgradeOverABrokenFormIsSafe runs tenond on a node with a service that
// has an exclusive CPU and with best-effort work, and replaces its state files
// by those of a former form. The next tenond must name such a file and not
// start; the service keeps its CPU and the work runs on. After tenon restore, the
// node is as before Tenon, and tenond starts. The journal is that of the former
// tenond: its form did not change.
func TestAnUpgradeOverABrokenFormIsSafe(t *testing.T) {
	s := plantSite(t, exclusiveConfig+"resource-qos-config: {policies: {cpuIsolation: strongest}, beClass: {cpuQOS: {enable: true}}}\n")
	all := s.cpus("services")
	if all.Len() < 2 {
		t.Skipf("this machine has %d CPU, which cannot be exclusive", all.Len())
	}
	s.run("services/cache", "sleep", "600")
	s.before = s.dump(t)
	whole := s.wholeSets()
	d := s.tenond()
	eventually(t, "the service cache has one exclusive CPU", func() bool { return s.cpus("services/cache").Len() == 1 })
	s.choose("weight", "set", "weight")
	d.stop()
	own, others := s.cpus("services/cache"), s.cpus(job)
	state := func(name string) string { return filepath.Join(s.state, name) }
	before := s.readJournal()

	memory, err := os.ReadFile(state("memory.json"))
	if err != nil || !strings.Contains(string(memory), `"allocations":{`) {
		t.Fatalf("the state has no exclusive CPU: %v\n%s", err, memory)
	}
	for _, from := range []string{"memory.json", "mechanisms.json"} {
		to := map[string]string{"memory.json": "memory.json", "mechanisms.json": "ladder.json"}[from]
		good, err := os.ReadFile(state(from))
		if err != nil {
			t.Fatal(err)
		}
		makeFormer(t, state(from), state(to))
		for range 2 { // a supervisor starts tenond again and again
			d = s.launch()
			select {
			case <-d.end:
			case <-time.After(patience):
				t.Fatalf("tenond goes on with %s of a former form", to)
			}
			if d.ProcessState.Success() || !strings.Contains(d.said(), state(to)+": it was written by another release of Tenon") || !strings.Contains(d.said(), "tenon restore --state-dir "+s.state) {
				t.Errorf("with %s of a former form tenond ends with %v and says:\n%s", to, d.ProcessState, d.said())
			}
		}
		if _, err := os.Stat(state(to)); err != nil {
			t.Errorf("the file of the former form: %v", err)
		}
		if to != "memory.json" { // the next case is about one file alone
			continue
		}
		if err := os.WriteFile(state(from), good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if s.cpus("services/cache") != own || s.cpus(job) != others {
		t.Errorf("the service has %v and BE %v, want %v and %v", s.cpus("services/cache"), s.cpus(job), own, others)
	}
	if after := s.readJournal(); len(after.Touches) < len(before.Touches) {
		t.Errorf("the journal has %d knobs, want the %d of the former tenond", len(after.Touches), len(before.Touches))
	}
	s.goesOn(s.tasks[1])

	for file, set := range whole {
		s.before[file] = set
	}
	s.restore()
	d = s.tenond()
	for _, name := range []string{"ladder.json"} {
		if _, err := os.Stat(state(name)); err == nil {
			t.Errorf("%s is left", name)
		}
	}
	eventually(t, "the service cache has one exclusive CPU again", func() bool { return s.cpus("services/cache").Len() == 1 })
	d.signal(syscall.SIGTERM)
	<-d.end
	s.restore()
}
