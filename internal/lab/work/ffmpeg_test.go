package work

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestTranscodeArgs(t *testing.T) {
	got := strings.Join(Transcode{Input: "/a b.mp4", Threads: 2, ReadRate: 0.35, Period: 200 * time.Millisecond}.Args(), " ")
	for _, want := range []string{
		"-progress pipe:1", "-stats_period 0.2", "-readrate 0.3500 -stream_loop -1", "-threads 2 -i /a b.mp4",
		"-c:v libx264", "-c:a aac", "-f mpegts /dev/null", "-nostdin",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
	if got := strings.Join(Transcode{Report: "/tmp/a:b"}.Args(), " "); !strings.Contains(got, "-progress file:/tmp/a:b ") {
		t.Errorf("%q does not report to its file", got)
	}
	unpaced := Transcode{Input: "a", Threads: 1}.Args()
	for _, option := range []string{"-readrate", "-stats_period"} {
		if slices.Contains(unpaced, option) {
			t.Errorf("%s without need: older ffmpeg does not know it", option)
		}
	}
}

const report2 = `frame=10
fps=0.00
out_time_us=333333
out_time=00:00:00.333333
speed=N/A
progress=continue
frame=30
out_time_us=1000000
progress=continue
frame=40
out_time_us=N/A
progress=end
`

// follow reads a text as if one report came every second.
func follow(t *testing.T, text string) (*Marks, time.Time) {
	t.Helper()
	m, begun, n := &Marks{}, time.Unix(1000, 0), 0
	now := func() time.Time { n++; return begun.Add(time.Duration(n) * time.Second) }
	if err := m.Follow(strings.NewReader(text), now); err != nil {
		t.Fatal(err)
	}
	return m, begun
}

func TestFramesAreInterpolated(t *testing.T) {
	m, begun := follow(t, report2)
	second := func(s float64) time.Time { return begun.Add(time.Duration(s * float64(time.Second))) }
	tests := map[string]struct{ from, to, frames float64 }{
		"between reports":              {1, 2, 20},
		"halfway":                      {1.5, 2.5, 15},
		"before the first":             {0, 1, 10},
		"beyond the last":              {2, 3.5, 15},
		"a process that hung is still": {2, 100, 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			frames, _ := m.ProgressBetween(second(tt.from), second(tt.to))
			if frames != tt.frames {
				t.Errorf("%v frames, want %v", frames, tt.frames)
			}
		})
	}
	if _, media := m.ProgressBetween(second(1), second(2)); media != 666667*time.Microsecond {
		t.Errorf("media %v", media)
	}
	if !m.Started() || (&Marks{}).Started() {
		t.Error("started")
	}
}

func FuzzFollow(f *testing.F) {
	f.Add(report2)
	f.Add("frame=\nprogress=")
	f.Add("frame=-1\nout_time_us=9223372036854775807\nprogress=end\nframe=99999999999999999999\nprogress=end\n")
	f.Fuzz(func(t *testing.T, text string) {
		m, begun := &Marks{}, time.Unix(0, 0)
		m.Follow(strings.NewReader(text), func() time.Time { return begun })
		for _, to := range []time.Duration{0, time.Second, time.Hour} {
			frames, media := m.ProgressBetween(begun, begun.Add(to))
			if !(frames >= 0) || media < 0 {
				t.Errorf("%v frames, media %v after %v", frames, media, to)
			}
		}
	})
}

func TestParseVersion(t *testing.T) {
	tests := map[string]struct {
		text, want string
		version    Version
	}{
		"debian nginx":  {"nginx version: nginx/1.22.1\n", "1.22.1", Version{1, 22}},
		"ubuntu nginx":  {"nginx version: nginx/1.18.0 (Ubuntu)\n", "1.18.0", Version{1, 18}},
		"debian ffmpeg": {"ffmpeg version 5.1.6-0+deb12u1 Copyright (c) 2000-2024\nbuilt with gcc", "5.1.6-0+deb12u1", Version{5, 1}},
		"static ffmpeg": {"ffmpeg version n4.4.1 Copyright", "n4.4.1", Version{4, 4}},
		"git ffmpeg":    {"ffmpeg version N-109968-gd71a1d1 Copyright", "ffmpeg version N-109968-gd71a1d1 Copyright", Version{}},
		"not a version": {"hello", "hello", Version{}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v, text := parseVersion(tt.text)
			if v != tt.version || text != tt.want {
				t.Errorf("%v %q, want %v %q", v, text, tt.version, tt.want)
			}
		})
	}
	if !(Version{}).AtLeast(99, 0) || (Version{1, 18}).AtLeast(1, 20) || !(Version{2, 0}).AtLeast(1, 20) {
		t.Error("AtLeast")
	}
}
