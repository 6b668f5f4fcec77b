package image

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The full names of the images. Those after BusyBox are in published manifests.
const (
	Pause   = "registry.k8s.io/pause:3.10"
	BusyBox = "docker.io/library/busybox:1"
	NGINX   = "docker.io/koordinatorsh/nginx:v1.18-koord-exmaple" //nolint:misspell // the published name
	FFmpeg  = "registry.cn-zhangjiakou.aliyuncs.com/acs/ffmpeg-4-4-1-for-slo-test:v0.1"
	// Transcoder has the files of FFmpeg, so that the two images share a layer.
	Transcoder = "docker.io/jrottenberg/ffmpeg:ubuntu"
)

//go:embed start-ffmpeg.sh
var startFFmpeg string

// shell lists the programs that busybox provides in an image.
var shell = strings.Fields("sh sleep cat ls ps kill echo true false dd yes seq env id head tail wc grep mkdir rm touch date")

// A recipe makes one image. Its key is a hash of the programs and of the text
// of the recipe.
type recipe struct {
	name     string
	programs []string
	root     func(ctx context.Context, cache string, programs []string) (*Root, error)
	entry    []string
}

var recipes = []recipe{
	{Pause, []string{"busybox"}, busybox, []string{"/bin/busybox", "sleep", "2147483647"}},
	{BusyBox, []string{"busybox"}, busybox, []string{"/bin/sh"}},
	{NGINX, []string{"busybox", "nginx"}, nginx,
		[]string{"/usr/sbin/nginx", "-p", "/apps/nginx", "-c", "/apps/nginx/conf/nginx.conf", "-e", "stderr", "-g", "daemon off;"}},
	{FFmpeg, []string{"busybox", "ffmpeg"}, ffmpeg, []string{"start-ffmpeg.sh", "1", "1", clip, "/apps/ffmpeg/"}},
	{Transcoder, []string{"busybox", "ffmpeg"}, ffmpeg, []string{"/usr/bin/ffmpeg"}},
}

const clip = "/apps/ffmpeg/input/HD2-h264.ts"

// Build makes the images of the test cluster in cache/cluster/images, from
// programs of this machine. It skips images whose programs have not changed.
func Build(ctx context.Context, cache string) (Layout, error) {
	l := Layout{Dir: filepath.Join(cache, "cluster", "images")}
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return l, fmt.Errorf("make the images: %w", err)
	}
	key := startFFmpeg + strings.Join(shell, " ")
	for _, r := range recipes {
		paths, err := r.paths()
		if err != nil {
			return l, err
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil {
				return l, fmt.Errorf("make image %s: %w", r.name, err)
			}
			key += fmt.Sprintln(r.name, r.entry, path, info.Size(), info.ModTime().Unix())
		}
	}
	lock, err := os.Create(filepath.Join(cache, "cluster", "lock-images"))
	if err != nil {
		return l, fmt.Errorf("make the images: %w", err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return l, fmt.Errorf("make the images: %w", err)
	}
	keyFile := filepath.Join(l.Dir, ".key")
	if old, err := os.ReadFile(keyFile); err == nil && string(old) == key {
		return l, nil
	}
	for _, r := range recipes {
		if err := r.make(ctx, cache, l); err != nil {
			return l, err
		}
	}
	if err := l.prune(); err != nil {
		return l, fmt.Errorf("make the images: %w", err)
	}
	return l, os.WriteFile(keyFile, []byte(key), 0o644)
}

// BuildSmall makes the images in dir, for machines that need minutes to copy
// 250 MB. In place of ffmpeg, a small program works from time to time.
func BuildSmall(ctx context.Context, dir string) (Layout, error) {
	l := Layout{Dir: dir}
	for _, r := range recipes {
		if r.name == FFmpeg || r.name == Transcoder {
			r.programs, r.root = []string{"busybox"}, standIn
		}
		if err := r.make(ctx, dir, l); err != nil {
			return l, err
		}
	}
	return l, nil
}

// paths returns the paths of a recipe's programs on this machine.
func (r recipe) paths() ([]string, error) {
	var paths []string
	for _, p := range r.programs {
		path, err := exec.LookPath(p)
		if err != nil {
			return nil, fmt.Errorf("make image %s: %w: run scripts/install-deps.sh test", r.name, err)
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// make adds the image to a layout.
func (r recipe) make(ctx context.Context, cache string, l Layout) error {
	paths, err := r.paths()
	if err != nil {
		return err
	}
	root, err := r.root(ctx, cache, paths)
	if err != nil {
		return fmt.Errorf("make image %s: %w", r.name, err)
	}
	return l.Add(r.name, root, r.entry...)
}

func busybox(_ context.Context, _ string, programs []string) (*Root, error) {
	r := &Root{}
	for _, name := range shell {
		r.Link("/bin/"+name, "busybox")
	}
	r.Dir("/tmp", 0o1777)
	r.Dir("/run", 0o755)
	r.Text("/etc/passwd", 0o644, "root:x:0:0::/:/bin/sh\nnginx:x:101:101::/:/bin/false\nnobody:x:65534:65534::/:/bin/false\n")
	r.Text("/etc/group", 0o644, "root:x:0:\nnginx:x:101:\nnogroup:x:65534:\n")
	return r, r.Program("/bin/busybox", programs[0])
}

// nginx returns an image that reads /apps/nginx/conf/nginx.conf, which the
// manifests mount. It serves the usual page of nginx. It has no access log,
// because at tens of thousands of requests per second the log would be a second
// workload.
func nginx(ctx context.Context, cache string, programs []string) (*Root, error) {
	r, err := busybox(ctx, cache, programs)
	if err != nil {
		return nil, err
	}
	r.Dir("/var/lib/nginx", 0o755)
	r.Dir("/apps/nginx/conf", 0o755)
	r.Link("/var/log/nginx/access.log", "/dev/null")
	r.Text("/apps/nginx/html/index.html", 0o644, page)
	return r, r.Program("/usr/sbin/nginx", programs[1])
}

func ffmpeg(ctx context.Context, cache string, programs []string) (*Root, error) {
	r, err := busybox(ctx, cache, programs)
	if err != nil {
		return nil, err
	}
	film := filepath.Join(cache, "cluster", filepath.Base(clip))
	out, err := exec.CommandContext(ctx, programs[1], filmArgs(film)...).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("render the film: %w: %s", err, strings.TrimSpace(string(out)))
	}
	r.Text("/usr/bin/start-ffmpeg.sh", 0o755, startFFmpeg)
	if err := r.File(clip, film); err != nil {
		return nil, err
	}
	return r, r.Program("/usr/bin/ffmpeg", programs[1])
}

// standIn returns an image in place of ffmpeg's. It works for a moment every
// two seconds.
func standIn(ctx context.Context, cache string, programs []string) (*Root, error) {
	r, err := busybox(ctx, cache, programs)
	if err != nil {
		return nil, err
	}
	r.Dir("/apps/ffmpeg", 0o755)
	r.Text("/usr/bin/start-ffmpeg.sh", 0o755, `#!/bin/sh
trap 'exit 0' TERM INT
while :; do
	i=0
	while [ $i -lt 50000 ]; do i=$((i+1)); done
	sleep 2
done
`)
	return r, nil
}

// filmArgs are the arguments that render four seconds of 1080p30 with moving
// shapes and noise. An encoder needs almost no CPU for a flat or still picture.
func filmArgs(out string) []string {
	return []string{
		"-nostdin", "-hide_banner", "-loglevel", "error", "-y",
		"-f", "lavfi", "-i", "testsrc2=size=1920x1080:rate=30", "-t", "4",
		"-vf", "noise=alls=6:allf=t,format=yuv420p",
		"-c:v", "libx264", "-preset", "ultrafast", "-b:v", "8M", "-g", "30",
		"-f", "mpegts", out,
	}
}

// page is as long as nginx's own page: 612 bytes.
var page = func() string {
	text := "<!doctype html><title>Tenon</title>\n" + strings.Repeat("<p>nginx answers, ffmpeg waits.</p>\n", 20)
	return text[:612]
}()
