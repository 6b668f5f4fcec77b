package containerlog

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// linesOf reads a log, and returns what the container printed.
func linesOf(r io.Reader) ([]string, Summary) {
	var all []string
	s := Read(r, func(_ time.Time, text string) { all = append(all, text) })
	return all, s
}

// cri makes a record of the Container Runtime Interface, at a second of a minute.
func cri(second int, stream, tag, text string) string {
	return fmt.Sprintf("2026-03-17T10:24:%02dZ %s %s %s\n", second, stream, tag, text)
}

func docker(second int, stream, text string) string {
	return fmt.Sprintf("{\"log\":%q,\"stream\":%q,\"time\":\"2026-03-17T10:24:%02dZ\"}\n", text, stream, second)
}

// TestPartsOfALineAreJoined cuts lines as container runtimes do: within a number, at a
// CR, in both streams at once, and at the end of the log.
func TestPartsOfALineAreJoined(t *testing.T) {
	for name, c := range map[string]struct {
		log  string
		want []string
	}{
		"cri":             {cri(1, "stderr", "P", "frame= 12") + cri(2, "stderr", "F", "34 fps"), []string{"frame= 1234 fps"}},
		"more tags":       {cri(1, "stderr", "P:x", "a") + cri(2, "stderr", "F:x", "b"), []string{"ab"}},
		"three parts":     {cri(1, "stderr", "P", "a") + cri(2, "stderr", "P", "b") + cri(3, "stderr", "F", "c"), []string{"abc"}},
		"both streams":    {cri(1, "stderr", "P", "a") + cri(1, "stdout", "P", "1") + cri(2, "stderr", "F", "b") + cri(3, "stdout", "F", "2"), []string{"ab", "12"}},
		"a part is empty": {cri(1, "stderr", "P", "a") + "2026-03-17T10:24:02Z stderr F\n", []string{"a"}},
		"at a CR":         {cri(1, "stderr", "F", "a") + cri(1, "stderr", "P", "1.5x\r") + cri(2, "stderr", "F", "frame= 2"), []string{"a", "1.5x\rframe= 2"}},
		"no last part":    {cri(1, "stdout", "F", "a") + cri(2, "stderr", "P", "b"), []string{"a", "b"}},
		"docker":          {docker(1, "stderr", "frame= 12") + docker(2, "stderr", "34 fps\n"), []string{"frame= 1234 fps"}},
		"docker, both":    {docker(1, "stderr", "a") + docker(1, "stdout", "1\n") + docker(2, "stderr", "b\n"), []string{"1", "ab"}},
		"docker, no LF":   {docker(1, "stderr", "a\n") + docker(2, "stderr", "b"), []string{"a", "b"}},
		"windows":         {strings.ReplaceAll(cri(1, "stderr", "F", "x")+cri(1, "stderr", "P", "12")+cri(2, "stderr", "F", "34"), "\n", "\r\n"), []string{"x", "1234"}},
	} {
		for _, r := range []io.Reader{strings.NewReader(c.log), iotest.OneByteReader(strings.NewReader(c.log))} {
			if got, s := linesOf(r); strings.Join(got, "|") != strings.Join(c.want, "|") || s.Damaged > 0 || s.Truncated {
				t.Errorf("%s: %q, %+v; want %q", name, got, s, c.want)
			}
		}
	}
}

// TestADamagedLineLosesOnlyItself damages each line of a log in turn.
func TestADamagedLineLosesOnlyItself(t *testing.T) {
	sound := []string{cri(1, "stderr", "F", "a"), docker(2, "stderr", "b\n"), cri(3, "stdout", "F", "c"), cri(4, "stderr", "F", "d")}
	for i := range sound {
		for name, bad := range map[string]string{
			"NUL": strings.Repeat("\x00", 4096), "long": strings.Repeat("x", 3*maxRecord), "half a JSON": `{"log":"x","ti`, "no stream": "2026-03-17T10:24:01Z", "empty": "",
			"another time": "17.03.2026 stderr F x", "large number": "1773743041.5 stderr F x",
		} {
			log := append([]string{}, sound...)
			log[i] = bad + "\n"
			got, s := linesOf(strings.NewReader(strings.Join(log, "")))
			if len(got) != len(sound)-1 || s.Damaged != 1 || !strings.HasPrefix(s.Damage, fmt.Sprintf("line %d: ", i+1)) || len(s.Damage) > 400 {
				t.Errorf("%s in line %d: %q, %d damaged, %.500q", name, i+1, got, s.Damaged, s.Damage)
			}
		}
	}
}

// TestADamagedRecordEndsTheLineItMayBelongTo damages the record between two parts. The
// text before and after it is never one line.
func TestADamagedRecordEndsTheLineItMayBelongTo(t *testing.T) {
	out, end := cri(1, "stdout", "P", "frame= 1"), cri(4, "stdout", "F", "x")
	for name, c := range map[string]struct {
		log  string
		want []string
	}{
		"NUL":               {cri(1, "stderr", "P", "elapsed 1") + out + strings.Repeat("\x00", 4096) + "\n" + cri(3, "stderr", "F", "2.5") + end, []string{"2.5", "x"}},
		"long":              {cri(1, "stderr", "P", "elapsed 1") + out + cri(2, "stderr", "F", strings.Repeat("x", 2*maxRecord)) + cri(3, "stderr", "F", "2.5") + end, []string{"2.5", "x"}},
		"docker":            {docker(1, "stderr", "elapsed 1") + `{"log":"x","ti` + "\n" + docker(3, "stderr", "2.5\n"), []string{"2.5"}},
		"its stream":        {out + cri(1, "stderr", "P", "elapsed 1") + "2026-03-17T10:24:02Z stderr\n" + cri(3, "stderr", "F", "2.5") + end, []string{"2.5", "frame= 1x"}},
		"its stream, JSON":  {out + docker(1, "stderr", "elapsed 1") + `{"log":"x","stream":"stderr"}` + "\n" + docker(3, "stderr", "2.5\n") + end, []string{"2.5", "frame= 1x"}},
		"at the end":        {cri(1, "stderr", "F", "a") + cri(1, "stderr", "P", "elapsed 1") + "x\n", []string{"a"}},
		"two halves":        {cri(1, "stderr", "P", "elapsed 1") + "2026-03-" + cri(2, "stdout", "F", "b") + cri(3, "stderr", "F", "2.5"), []string{"2.5"}},
		"before the part":   {"x\n" + cri(1, "stderr", "P", "a") + cri(3, "stderr", "F", "b"), []string{"ab"}},
		"between two lines": {cri(1, "stderr", "P", "a") + cri(3, "stderr", "F", "b") + "x\n" + cri(3, "stderr", "F", "c"), []string{"ab", "c"}},
	} {
		if got, s := linesOf(strings.NewReader(c.log)); strings.Join(got, "|") != strings.Join(c.want, "|") || s.Damaged != 1 {
			t.Errorf("%s: %.200q, %d damaged; want %q", name, got, s.Damaged, c.want)
		}
	}
	broken := io.MultiReader(strings.NewReader(cri(1, "stderr", "F", "a")+cri(1, "stderr", "P", "frame= 1")), iotest.ErrReader(errors.New("input/output error")))
	if got, s := linesOf(broken); strings.Join(got, "|") != "a" || s.Damaged != 1 {
		t.Errorf("read error: %q, %+v", got, s)
	}
}

// TestALogThatEndsWithinARecordIsTruncated cuts off the end of a log. Of a record that
// is cut, no text counts: frame= 12 can be the begin of frame= 1234.
func TestALogThatEndsWithinARecordIsTruncated(t *testing.T) {
	first := cri(1, "stderr", "F", "a") + cri(1, "stdout", "P", "b")
	for name, c := range map[string]struct {
		log  string
		want []string
		cut  bool
	}{
		"in the text":      {first + strings.TrimSuffix(cri(2, "stderr", "F", "frame= 12"), "\n"), []string{"a", "b"}, true},
		"in a last part":   {first + strings.TrimSuffix(cri(2, "stdout", "F", "frame= 12"), "\n"), []string{"a"}, true},
		"in a part":        {first + strings.TrimSuffix(cri(2, "stdout", "P", "frame= 12"), "\n"), []string{"a"}, true},
		"in the tag":       {first + "2026-03-17T10:24:02Z stdout F", []string{"a"}, true},
		"in the stream":    {first + "2026-03-17T10:24:02Z std", []string{"a"}, true},
		"in the time":      {first + "2026-03-17T10:24:0", []string{"a"}, true},
		"in JSON":          {docker(1, "stderr", "a\n") + docker(1, "stderr", "b") + `{"log":"frame= 12`, []string{"a"}, true},
		"behind JSON":      {docker(1, "stderr", "a\n") + strings.TrimSuffix(docker(2, "stderr", "frame= 12\n"), "\n"), []string{"a", "frame= 12"}, false},
		"behind a record":  {first, []string{"a", "b"}, false},
		"the only record":  {"2026-03-17T10:24:02Z stderr F x", nil, true},
		"nothing in a log": {"", nil, false},
	} {
		if got, s := linesOf(strings.NewReader(c.log)); strings.Join(got, "|") != strings.Join(c.want, "|") || s.Truncated != c.cut || s.Damaged > 0 {
			t.Errorf("%s: %q, %+v; want %q", name, got, s, c.want)
		}
	}
}

// TestLineEndsOfWindowsAreKnownBehindADamagedLine has a log whose first line cannot be
// read. In a log with LF, a CR at the end of a part belongs to the text.
func TestLineEndsOfWindowsAreKnownBehindADamagedLine(t *testing.T) {
	parts := cri(1, "stderr", "F", "x") + cri(1, "stderr", "P", "12") + cri(2, "stderr", "F", "34")
	for name, bad := range map[string]string{"long": strings.Repeat("x", 2*maxRecord), "NUL": "\x00\x00", "NUL and CR": "\x00\r"} {
		if got, _ := linesOf(strings.NewReader(bad + "\n" + strings.ReplaceAll(parts, "\n", "\r\n"))); strings.Join(got, "|") != "x|1234" {
			t.Errorf("%s: %q", name, got)
		}
		if got, _ := linesOf(strings.NewReader(bad + "\n" + cri(1, "stderr", "F", "x") + cri(1, "stderr", "P", "1\r") + cri(2, "stderr", "F", "2"))); strings.Join(got, "|") != "x|1\r2" {
			t.Errorf("%s, then a CR at the end of a part: %q", name, got)
		}
	}
}

func TestAStepOfTheClockIsSeen(t *testing.T) {
	for name, c := range map[string]struct {
		seconds []int
		back    time.Duration
	}{
		"none":              {[]int{1, 2, 2, 40}, 0},
		"a second":          {[]int{10, 9, 40}, 0},
		"in between":        {[]int{10, 30, 20, 40}, 10 * time.Second},
		"at the end":        {[]int{10, 50, 1}, 49 * time.Second},
		"the larger of two": {[]int{30, 20, 40, 10}, 30 * time.Second},
	} {
		log := ""
		for _, s := range c.seconds {
			log += cri(s, "stderr", "F", "x")
		}
		if _, s := linesOf(strings.NewReader(log)); s.Back != c.back || s.Damaged > 0 {
			t.Errorf("%s: %+v, want %v back", name, s, c.back)
		}
	}
}

func TestWhatCannotBeReadIsDamage(t *testing.T) {
	broken := io.MultiReader(strings.NewReader(cri(1, "stderr", "F", "a")), iotest.ErrReader(errors.New("input/output error")))
	if got, s := linesOf(broken); len(got) != 1 || s.Damage != "line 2: input/output error" {
		t.Errorf("%q, %+v", got, s)
	}
	if got, s := linesOf(strings.NewReader(cri(1, "stderr", "F", "a") + "2026-03-1")); len(got) != 1 || !s.Truncated || s.Damaged > 0 {
		t.Errorf("cut off: %q, %+v", got, s)
	}
}

// TestAJoinedLineIsBounded has a job that prints for days without the end of a line.
func TestAJoinedLineIsBounded(t *testing.T) {
	var log strings.Builder
	for range 300 {
		log.WriteString(cri(1, "stderr", "P", strings.Repeat("x", 16<<10)))
	}
	log.WriteString(cri(2, "stderr", "F", "frame= 1234"))
	got, _ := linesOf(strings.NewReader(log.String()))
	if len(got) != 1 || len(got[0]) > maxJoined+16<<10 || !strings.HasSuffix(got[0], "frame= 1234") {
		t.Errorf("%d lines, the first has %d bytes", len(got), len(got[0]))
	}
}

func FuzzRead(f *testing.F) {
	f.Add(cri(1, "stderr", "P", "a") + cri(2, "stderr", "F", "b") + docker(3, "stdout", "c"))
	f.Add("\x00\n" + cri(1, "stdout", "F", "a"))
	f.Fuzz(func(t *testing.T, log string) {
		got, s := linesOf(strings.NewReader(log))
		if len(got) > s.Records || s.Records+s.Damaged > strings.Count(log, "\n")+1 || len(s.Damage) > 400 || s.Damaged > 0 != (s.Damage != "") {
			t.Errorf("%q: %q, %+v", log, got, s)
		}
		// A sound record after it is read, whatever stood before.
		if !strings.HasSuffix(log, "\n") {
			log += "\n"
		}
		after, _ := linesOf(strings.NewReader(log + cri(9, "stdout", "F", "end")))
		if len(after) == 0 || !strings.Contains(strings.Join(after, "\n"), "end") {
			t.Errorf("%q: the record after it is lost: %q", log, after)
		}
	})
}
