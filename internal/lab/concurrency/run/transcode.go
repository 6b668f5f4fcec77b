package run

import (
	"fmt"
	"strconv"

	"tenon.sh/tenon/internal/model/unit"
)

// A task is the work of a job.
type task interface {
	// argv returns the command of one job. frames is the length of the job in
	// units of work; if it is 0, the job does not end. The commands of jobs
	// that report no progress ignore frames.
	argv(slot, threads int, frames float64) []string
	// reports returns true if the job writes its progress to its standard
	// output, in the form of ffmpeg.
	reports() bool
	// source returns the name of the film or of the command, for the table.
	source() string
}

// A transcode is the job of the published experiment. It encodes a film with
// x264's preset medium, and discards the result. Only the height of the picture
// is different, so that a short job keeps every CPU of the machine busy.
type transcode struct {
	ffmpeg, input, name string
	height              int
	period              bool // ffmpeg can report more often than twice a second (4.4)
}

// x264 starts at most one thread per this number of lines of a picture.
const lines = 32

// heightFor returns the smallest picture height with which x264 starts its
// usual number of threads: 3/2 per CPU.
func heightFor(cpus int) int {
	for _, h := range []int{360, 720} {
		if h/lines >= (3*cpus+1)/2 {
			return h
		}
	}
	return 1080
}

func (t transcode) argv(_, threads int, frames float64) []string {
	n := strconv.Itoa(threads)
	args := []string{
		t.ffmpeg, "-nostdin", "-hide_banner", "-loglevel", "error", "-y", "-nostats", "-progress", "pipe:1",
	}
	if t.period {
		args = append(args, "-stats_period", "0.2")
	}
	args = append(args,
		"-stream_loop", "-1", "-threads", n, "-i", t.input)
	args = append(args, encoderArgs(t.height, threads)...)
	if frames > 0 {
		args = append(args, "-frames:v", strconv.Itoa(int(frames)))
	}
	return append(args, "-an", "-f", "mp4", "/dev/null")
}

// encoderArgs returns ffmpeg's arguments for the encoder of the published
// experiment. That experiment used 1080 lines, and set the number of threads to
// 0, so that the encoder chose this number.
func encoderArgs(height, threads int) []string {
	return []string{
		"-c:v", "libx264", "-s", fmt.Sprintf("%dx%d", height*16/9, height), "-crf", "22", "-profile:v", "main",
		"-pix_fmt", "yuv420p", "-threads", strconv.Itoa(threads),
	}
}

func (transcode) reports() bool    { return true }
func (t transcode) source() string { return t.name }

// A command is a job that the user named.
type command struct{ args []string }

func (c command) argv(slot, threads int, _ float64) []string {
	return append([]string{"env", "TENON_JOB=" + strconv.Itoa(slot), "TENON_THREADS=" + strconv.Itoa(threads)}, c.args...)
}

func (command) reports() bool    { return false }
func (c command) source() string { return c.args[0] }

// weightOf returns the CPU weight that Kubernetes gives to a CPU request as
// large as the limit. For a job without a limit, the request is one CPU.
func weightOf(limit unit.MilliCPU) unit.Weight {
	if limit == 0 {
		limit = unit.CPUs(1)
	}
	return unit.WeightOfShares(max(int64(limit)*1024/1000, unit.MinShares))
}
