package vm

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// realPrograms packs the nginx and the ffmpeg of this machine with all they
// need to run.
func realPrograms(t *testing.T) *Image {
	t.Helper()
	image := new(Image)
	for program, pkg := range map[string]string{"nginx": "nginx-light", "ffmpeg": "ffmpeg", "ffprobe": "ffmpeg"} {
		host, err := exec.LookPath(program)
		if err != nil {
			// nginx lives where only root looks for programs.
			host, err = exec.LookPath("/usr/sbin/" + program)
		}
		if err != nil {
			missing(t, "needs %s: install %s, or run scripts/install-deps.sh test", program, pkg)
		}
		if err := image.Program("/usr/bin/"+program, host); err != nil {
			t.Fatal(err)
		}
	}
	image.Dir("/var/log/nginx")
	image.Dir("/var/lib/nginx")
	return image
}

func TestRealProgramsRunInTheGuest(t *testing.T) {
	machine(t)
	image := realPrograms(t)
	image.Text("/etc/test.conf", `
		worker_processes 2;
		events {}
		http {
			access_log off;
			server { listen 127.0.0.1:8080; location / { return 200 "it serves\n"; } }
		}`)
	serve := Shell("serve", "nginx -c /etc/test.conf && wget -q -O- http://127.0.0.1:8080/ && nginx -c /etc/test.conf -s quit")
	serve.Timeout = time.Minute
	transcode := Shell("transcode", "ffmpeg -nostdin -loglevel error -f lavfi -i testsrc2=size=320x180:rate=25 -frames:v 64 -c:v libx264 -y /tmp/clip.mp4 && "+
		"ffprobe -loglevel error -count_frames -select_streams v -show_entries stream=codec_name,nb_read_frames -of csv=p=0 /tmp/clip.mp4")
	transcode.Timeout = 2 * time.Minute
	report := run(t, image, 4*time.Minute, Shell("version", "nginx -v"), serve, transcode)
	for name, want := range map[string]string{"version": "nginx version", "serve": "it serves", "transcode": "h264,64"} {
		if o, ok := report.Outcome(name); !ok || o.Exit != 0 || !strings.Contains(o.Output, want) {
			t.Errorf("%s: exit %d, output %q, want %q", name, o.Exit, o.Output, want)
		}
	}
}
