package run

import (
	"fmt"
	"path"
	"strconv"
)

// ownFilm is the path of the film that is rendered in the pod itself.
const ownFilm = "/film/tenon.mp4"

// renders reports whether the pods render the film of their jobs.
func (b *pods) renders() bool { return len(b.Argv) == 0 && b.Input == "" }

// filmCommand renders two seconds of moving shapes and noise, so that each
// frame costs the same. An encoder would need almost no CPU for a still
// picture.
func filmCommand(height int) []string {
	return []string{
		"ffmpeg", "-nostdin", "-hide_banner", "-loglevel", "error", "-y",
		"-f", "lavfi", "-i", fmt.Sprintf("testsrc2=size=%dx%d:rate=24", height*16/9, height), "-t", "2",
		"-vf", "noise=alls=6:allf=t,format=yuv420p", "-c:v", "libx264", "-preset", "ultrafast", ownFilm,
	}
}

// film returns the path of the film in a pod.
func (b *pods) film() string {
	if b.Input != "" {
		return b.Input
	}
	return ownFilm
}

// source returns the name of the film or of the command, for the table.
func (b *pods) source() string {
	if len(b.Argv) > 0 {
		return path.Base(b.Argv[0])
	}
	return path.Base(b.film())
}

// argv returns the command of a job. The lab's own job encodes b.whole frames.
// As published, it encodes the whole film.
func (b *pods) argv(threads int) []string {
	if len(b.Argv) > 0 {
		return b.Argv
	}
	if b.AsPublished {
		args := append([]string{"ffmpeg", "-y", "-i", b.film(), "-stats"}, encoderArgs(b.height, threads)...)
		return append(args, "-f", "mp4", "-ac", "2", "-c:a", "aac", "-b:a", "128k", "-strict", "-2", "/tmp/output.mp4")
	}
	args := append([]string{
		"ffmpeg", "-nostdin", "-hide_banner", "-y", "-stream_loop", "-1", "-threads", strconv.Itoa(threads), "-i", b.film(), "-stats",
	}, encoderArgs(b.height, threads)...)
	return append(args, "-frames:v", strconv.Itoa(int(b.whole)), "-an", "-f", "mp4", "/dev/null")
}
