package work

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"

	"tenon.sh/tenon/internal/lab/testbed"
)

// clipName is the name of the clip that clipArgs renders. If clipArgs changes,
// the name must change, too, so that an old clip in the cache is not used.
const clipName = "tenon-clip-1080p-v1.mp4"

// clipArgs renders six seconds of 1080p30: moving shapes, a zoom into the
// Mandelbrot set, noise, and a tone. Each frame costs about the same. For a
// flat or still picture, an encoder would need almost no CPU.
func clipArgs(out string) []string {
	return []string{
		"-nostdin", "-hide_banner", "-loglevel", "error", "-y",
		"-f", "lavfi", "-i", "testsrc2=size=1920x1080:rate=30",
		"-f", "lavfi", "-i", "mandelbrot=size=480x270:rate=30:start_scale=0.5:end_scale=0.02:end_pts=400",
		"-f", "lavfi", "-i", "sine=frequency=330:beep_factor=4",
		"-filter_complex", "[1:v]scale=1920:1080:flags=bilinear,format=yuv420p[m];[0:v]format=yuv420p[t];" +
			"[t][m]blend=all_mode=average,noise=alls=6:allf=t[v]",
		"-map", "[v]", "-map", "2:a", "-t", "6",
		"-c:v", "libx264", "-preset", "ultrafast", "-b:v", "8M", "-g", "30", "-pix_fmt", "yuv420p",
		"-c:a", "aac", "-f", "mp4", out,
	}
}

// CacheDir returns the directory for rendered clips. It is in the user's cache
// directory. If the user has none, it is in the directory for temporary files.
func CacheDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		dir = os.TempDir()
	}
	return filepath.Join(dir, "tenon")
}

// Clip returns the path of the lab's own clip in dir. If the clip does not
// exist, Clip calls rendering, and then renders the clip. The file gets its
// final name only when it is complete.
func Clip(ctx context.Context, ffmpeg, dir string, rendering func()) (string, error) {
	clip := filepath.Join(dir, clipName)
	if info, err := os.Stat(clip); err == nil && info.Size() > 0 {
		return clip, nil
	}
	rendering()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("render the clip: %w", err)
	}
	part, err := os.CreateTemp(dir, "."+clipName+".*")
	if err != nil {
		return "", fmt.Errorf("render the clip: %w", err)
	}
	part.Close()
	defer os.Remove(part.Name()) // no effect after the rename
	cmd := exec.CommandContext(ctx, ffmpeg, clipArgs(part.Name())...)
	runtime.LockOSThread() // the parent-death signal of the child depends on this thread
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("render the clip in %s: %w%s", dir, errors.Join(ctx.Err(), err), testbed.QuoteOutput(out))
	}
	if err := os.Rename(part.Name(), clip); err != nil {
		return "", fmt.Errorf("render the clip: %w", err)
	}
	return clip, nil
}
