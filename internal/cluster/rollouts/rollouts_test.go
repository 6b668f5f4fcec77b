package rollouts

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"tenon.sh/tenon/internal/decide/rollout"
	"tenon.sh/tenon/internal/decide/trials/switchback"
	"tenon.sh/tenon/internal/model/unit"
)

var begin = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// played returns a rollout of twenty nodes after some minutes. Services wait harm times as
// long on nodes that are on, and noise is how much their waits scatter.
func played(minutes int, harm, noise float64) (s rollout.State) {
	rnd := rand.New(rand.NewPCG(1, 2))
	c := rollout.Config{Margin: 10, Shares: []unit.Percent{5, 25, 100}, Epoch: 30 * time.Minute}
	var b rollout.Block
	nodes := make([]rollout.Node, 20)
	for i := range nodes {
		nodes[i] = rollout.Node{Name: fmt.Sprintf("n%02d", i), Run: "a", Fresh: true, Batch: true, Waits: map[string]switchback.Count{"shop/web-0": {}}}
	}
	for m := range minutes {
		for i := range nodes {
			n := &nodes[i]
			if n.On = s.IsOn(n.Name); s.Phase == "" {
				n.On = false
			}
			wait := 1e5 * (1 + noise*rnd.Float64())
			if n.On {
				wait *= harm
			}
			w := n.Waits["shop/web-0"]
			n.Waits = map[string]switchback.Count{"shop/web-0": {Waits: w.Waits + 1000, Waited: w.Waited + time.Duration(1000*wait)}}
		}
		s, b, _ = rollout.Step(c, s, b, nodes, begin.Add(time.Duration(m)*time.Minute), 7)
	}
	return s
}

// TestAStateIsReadAsItWasWritten writes states of all phases and reads them.
func TestAStateIsReadAsItWasWritten(t *testing.T) {
	for name, s := range map[string]rollout.State{
		"none": {}, "begun": played(1, 1, 0), "compares": played(300, 1, 0.1), "done": played(3000, 1, 0.1), "back": played(3000, 1.5, 0.1),
	} {
		data, err := Data(s)
		if err != nil {
			t.Fatal(err)
		}
		read, err := Read(&corev1.ConfigMap{Data: data})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if again, err := Data(read); err != nil || !reflect.DeepEqual(again, data) {
			t.Errorf("%s: %v: read as\n%s\nand written as\n%s", name, err, again, data)
		}
	}
	if s, err := Read(&corev1.ConfigMap{}); err != nil || s.Phase != "" {
		t.Errorf("an empty ConfigMap is %+v, %v", s, err)
	}
	for _, text := range []string{"", "{", `{"phase":"done"}`, `[]`, `{"phase":"compares","config":{}}`} {
		if _, err := Read(&corev1.ConfigMap{Data: map[string]string{key: text}}); err == nil {
			t.Errorf("%q is no state", text)
		}
	}
}

// TestThePageHasALineForEachLook counts the lines of the table, and checks that the first
// line is about the last look.
func TestThePageHasALineForEachLook(t *testing.T) {
	for _, s := range []rollout.State{{}, played(1, 1, 0), played(300, 1, 0.1), played(3000, 1, 0.1), played(3000, 1.5, 0.1), played(2000, 1.1, 3)} {
		text := Text(s, begin.Add(50*time.Hour))
		lines := strings.Split(strings.TrimSpace(text), "\n")
		if s.Phase == "" {
			if len(lines) != 1 {
				t.Errorf("no rollout is\n%s", text)
			}
			continue
		}
		last := s.Verdicts[len(s.Verdicts)-1]
		_, rows, _ := strings.Cut(text, "\n\n")
		if n := len(strings.Split(strings.TrimSpace(rows), "\n")); n != len(s.Verdicts)+1 || lines[0] != Sentence(s.Config, last) || !strings.HasSuffix(lines[len(lines)-1], string(last.Code)) {
			t.Errorf("%d verdicts are\n%s", len(s.Verdicts), text)
		}
		t.Logf("\n%s", text)
	}
}

// TestARolloutThatHasJustBegunSaysSo reads the page in the first minute.
func TestARolloutThatHasJustBegunSaysSo(t *testing.T) {
	if text := Text(played(1, 1, 0), begin.Add(20*time.Second)); !strings.Contains(text, "\nStage 1 of 3 began less than a minute ago: ") {
		t.Errorf("the page is\n%s", text)
	}
}

// TestAClockThatIsBehindShows reads the page by a clock that is behind that of the manager.
func TestAClockThatIsBehindShows(t *testing.T) {
	for behind, want := range map[time.Duration]string{20 * time.Second: "less than a minute", 90 * time.Minute: "-1h30m"} {
		if text := Text(played(1, 1, 0), begin.Add(-behind)); !strings.Contains(text, "\nStage 1 of 3 began "+want+" ago: ") {
			t.Errorf("%v behind, the page is\n%s", behind, text)
		}
	}
}

// TestTheNumbersOfALookAreRaw checks that the values of a stage give its verdict again.
func TestTheNumbersOfALookAreRaw(t *testing.T) {
	s := played(2000, 1.1, 3)
	data, err := Data(s)
	if err != nil {
		t.Fatal(err)
	}
	var raw struct {
		Logs     []float64 `json:"logs"`
		Verdicts []struct {
			Pairs int     `json:"pairs"`
			Code  string  `json:"code"`
			Ratio float64 `json:"ratio"`
		} `json:"verdicts"`
	}
	if err := json.Unmarshal([]byte(data[key]), &raw); err != nil {
		t.Fatal(err)
	}
	last := raw.Verdicts[len(raw.Verdicts)-1]
	if last.Code != string(rollout.Waits) || len(raw.Logs) < last.Pairs || last.Ratio <= 0 {
		t.Errorf("%d values, and the last verdict is %+v", len(raw.Logs), last)
	}
}
