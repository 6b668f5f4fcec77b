package jobfiles

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/lab/jobs"
)

// linkOf returns the name of the log of a job. Four jobs of 2 CPUs run at once.
func linkOf(index int) string {
	return fmt.Sprintf("aws-4-2-1gi-%d-x%dy2z_default_transcoder-%d-%s.log", index, index, index, idOf(index))
}

func idOf(index int) string { return strings.Repeat(fmt.Sprint(index), 64) }

// logOf returns the log of a job that ran from second 1 to 40.
func logOf() string {
	return "2026-03-17T10:24:01Z stderr F Input #0, mov,mp4, from '/data/source1.mp4':\n" +
		"2026-03-17T10:24:20Z stderr F a line\n" +
		"2026-03-17T10:24:40Z stderr F frame= 1234 Lsize= 9KiB\n"
}

func zip(t *testing.T, text string) string {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if _, err := z.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// write makes the files of a node, and returns its folder.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "node00")
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// node returns the logs of four jobs, with those of change.
func node(change map[string]string) map[string]string {
	files := map[string]string{}
	for i := range 4 {
		files[linkOf(i)] = logOf()
	}
	maps.Copy(files, change)
	return files
}

// TestOneBadLogIsOneVoidJob damages one of four logs. The import names it and its
// reason. The three others count, as three of four jobs that ran beside each other.
func TestOneBadLogIsOneVoidJob(t *testing.T) {
	lines := strings.SplitAfter(logOf(), "\n")
	for name, c := range map[string]struct{ log, void string }{
		"NUL bytes":        {lines[0] + strings.Repeat("\x00", 4096) + "\n" + lines[2], "its log is damaged: line 2: it has NUL bytes where its time should be"},
		"a long line":      {lines[0] + strings.Repeat("x", 2<<20) + "\n" + lines[2], "its log is damaged: line 2: it has more than 1048576 bytes"},
		"only NUL bytes":   {strings.Repeat("\x00", 16<<10), "no line of its log can be read"},
		"a binary file":    {"\x7fELF\x02\x01\x01\n\x00\x00\n" + strings.Repeat("\xff", 300) + "\n", "its log is damaged: line 1"},
		"other text":       {"hello\n", "its log is damaged: line 1"},
		"clock at the end": {lines[0] + lines[1] + strings.Replace(lines[2], "24:40", "23:01", 1), "the clock of its log was set back: line 3 is 1m19s older than the one before"},
		"clock within":     {strings.Replace(lines[0], "24:01", "24:30", 1) + lines[1] + lines[2], "the clock of its log was set back: line 2 is 10s older"},
		"year 1":           {strings.ReplaceAll(logOf(), "2026", "0001"), "its log cannot be meant: "},
	} {
		in, err := ReadPaths([]string{write(t, node(map[string]string{linkOf(2): c.log}))})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		text := strings.Join(in.PassedTexts(), "\n")
		if len(in.Jobs) != 4 || in.Passed[Damaged].Count != 1 || !strings.Contains(text, "logs that cannot be read, or only in part: 1, such as "+linkOf(2)[:5]) || len(text) > 800 {
			t.Errorf("%s: %d jobs; %s", name, len(in.Jobs), text)
		}
		checkThree(t, name, in, c.void)
	}
}

// checkThree checks that job 2 of four is void for a reason, and that the others ran
// beside three others.
func checkThree(t *testing.T, name string, in Import, reason string) {
	t.Helper()
	for _, j := range in.Jobs {
		if want := map[bool]string{true: reason}[j.Index == 2]; !strings.HasPrefix(j.Extra.Void, want) || want == "" && j.Extra.Void != "" || len(j.Extra.Void) > 400 {
			t.Errorf("%s: job %d is void: %q, want %q", name, j.Index, j.Extra.Void, want)
		}
	}
	// The same jobs, read back from the table of the import.
	var table bytes.Buffer
	if err := jobs.WriteTable(&table, in.Jobs); err != nil {
		t.Fatal(err)
	}
	again, err := jobs.ReadTable(&table)
	if err != nil {
		t.Fatal(err)
	}
	jobs.VoidMixed(again)
	for _, all := range [][]jobs.Job{in.Jobs, again} {
		options := jobs.Options(jobs.Waves(all))
		if len(options) != 1 || options[0].Cell.Concurrency != 4 || options[0].Beside < 3.7 || options[0].Beside > 4 || len(options[0].Jobs) != 3 {
			t.Errorf("%s: %+v, want three jobs of four", name, options)
		}
	}
}

// TestAFailedJobIsNoUnreadOne has a log in which ffmpeg says that it failed. Such a job
// may have ended early, so the jobs beside it do not count.
func TestAFailedJobIsNoUnreadOne(t *testing.T) {
	in, err := ReadPaths([]string{write(t, node(map[string]string{linkOf(2): logOf() + "\x00\n2026-03-17T10:24:41Z stderr F Conversion failed!\n"}))})
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range in.Jobs {
		if j.Extra.Void == "" || j.Extra.Unread || j.Index == 2 && j.Extra.Void != `ffmpeg says "Conversion failed!"` {
			t.Errorf("job %d: void %q, unread %v", j.Index, j.Extra.Void, j.Extra.Unread)
		}
	}
}

// TestLogsOfDockerAreNamed has the logs of Docker with a list that names one log that is
// missing, and leaves out another one.
func TestLogsOfDockerAreNamed(t *testing.T) {
	docker := func(i int) string { return filepath.Join("var", idOf(i), idOf(i)+"-json.log") }
	log := "{\"log\":\"Input #0, mov, from '/data/source1.mp4':\\n\",\"stream\":\"stderr\",\"time\":\"2026-03-17T10:24:01Z\"}\n" +
		"{\"log\":\"frame= 1234 Lsize= 9KiB\\n\",\"stream\":\"stderr\",\"time\":\"2026-03-17T10:24:40Z\"}\n"
	files := map[string]string{docker(0): log, docker(1): log, docker(3): log, docker(7): log, docker(5): log}
	names := []string{linkOf(0), linkOf(1), linkOf(2), linkOf(3), "coredns-x_kube-system_dns-" + idOf(5) + ".log", "coredns-y_kube-system_dns-" + idOf(6) + ".log"}
	files[linksFile] = strings.Join(names, "\n")
	in, err := ReadPaths([]string{write(t, files)})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"logs that links.txt names and that are not there: 1, such as " + linkOf(2),
		"logs of Docker that no links.txt names: 1, such as ",
		"logs of other pods, whose names are not those of jobs: 1, such as coredns-x_kube-system_dns-" + idOf(5) + ".log",
	}
	got := in.PassedTexts()
	if len(got) != len(want) || !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, want[1]) && strings.HasSuffix(s, docker(7)) }) || got[0] != want[0] || got[2] != want[2] {
		t.Errorf("%q, want %q", got, want)
	}
	checkThree(t, "missing", in, "its log is missing, though links.txt names it")

	delete(files, linksFile)
	_, err = ReadPaths([]string{write(t, files)})
	if err == nil || !strings.Contains(err.Error(), "logs of Docker that no links.txt names: 5, such as ") {
		t.Errorf("without a list: error %v", err)
	}
}

// TestCompressedAndRotatedLogsAreRead has one log whole, one compressed, and two in
// parts. One part cannot be decompressed.
func TestCompressedAndRotatedLogsAreRead(t *testing.T) {
	lines := strings.SplitAfter(logOf(), "\n")
	files := node(nil)
	for i := 1; i < 4; i++ {
		delete(files, linkOf(i))
	}
	files[linkOf(1)+".gz"] = zip(t, logOf())
	files[linkOf(2)], files[linkOf(2)+".20260317-102410.gz"], files[linkOf(2)+".20260317-102430"] = lines[2], zip(t, lines[0]), lines[1]
	files[linkOf(3)], files[linkOf(3)+".2.gz"], files[linkOf(3)+".1"] = lines[2], zip(t, lines[0]), lines[1]
	in, err := ReadPaths([]string{write(t, files)})
	if err != nil || len(in.Jobs) != 4 || len(in.Passed) != 0 {
		t.Fatalf("%d jobs, passed over %q, %v", len(in.Jobs), in.PassedTexts(), err)
	}
	for _, j := range in.Jobs {
		if j.Extra.Void != "" || j.Seconds() != 39 || j.Extra.Work.Or(0) != 1234 || j.Source != "source1.mp4" {
			t.Errorf("job %d: %+v", j.Index, j)
		}
	}
	for name, bad := range map[string]string{"cut off": zip(t, lines[0])[:20], "no gzip": "x" + lines[0]} {
		files[linkOf(2)+".20260317-102410.gz"] = bad
		in, err := ReadPaths([]string{write(t, files)})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkThree(t, name, in, "its log is damaged: line 1: decompress: ")
	}
}

// TestNamesThatNoJobHasAreSaid has the log of another pod, and one of a job that asks
// for more CPU than there can be.
func TestNamesThatNoJobHasAreSaid(t *testing.T) {
	files := node(map[string]string{
		"aws-4-2-1gi-x-x1y2z_default_transcoder-0-" + idOf(7) + ".log":                    logOf(),
		"aws-4-99999999999999999999-1gi-0-x1y2z_default_transcoder-0-" + idOf(8) + ".log": logOf(),
		"README": "x",
	})
	in, err := ReadPaths([]string{write(t, files)})
	if err != nil || len(in.Jobs) != 4 {
		t.Fatalf("%d jobs, %v", len(in.Jobs), err)
	}
	for why, want := range map[Reason]int{OtherPod: 1, BadName: 1, Other: 1} {
		if in.Passed[why].Count != want {
			t.Errorf("%s: %d, want %d", reasonTexts[why], in.Passed[why].Count, want)
		}
	}
}
