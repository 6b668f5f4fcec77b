package lab

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNGINXConfig(t *testing.T) {
	got := NGINX{Dir: "/run/lab", Address: "127.0.0.1:8000", Workers: 6, Connections: 2000}.Config()
	want := `worker_processes 6;
worker_rlimit_nofile 4256;
pid "/run/lab/nginx.pid";
error_log stderr error;
events {
    worker_connections 2128;
}
http {
    access_log off;
    client_body_temp_path "/run/lab/body";
    keepalive_requests 1000000000;
    keepalive_timeout 3600s;
    server {
        listen 127.0.0.1:8000;
        gzip off;
        root "/run/lab/html";
        index index.html;
    }
}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestPageIsAsLargeAsTheOriginal(t *testing.T) {
	n := NGINX{Dir: t.TempDir(), Address: "127.0.0.1:1"}
	if err := n.Prepare(); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(n.Dir, "html", "index.html"))
	if err != nil || info.Size() != pageSize {
		t.Errorf("%v %v", info, err)
	}
}

func TestOccupiedPortIsNamed(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	err = portFree(l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), l.Addr().String()) || !strings.Contains(err.Error(), "--port") {
		t.Errorf("error %v", err)
	}
}

func TestMissingProgramNamesItsPackages(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	p := program{name: "no-such-program", packages: "apt install x | dnf install y | apk add z"}
	_, err := p.find()
	if err == nil || err.Error() != "no-such-program is not installed: apt install x | dnf install y | apk add z" {
		t.Errorf("error %v", err)
	}
	for _, p := range []program{nginxProgram, ffmpegProgram, wrkProgram} {
		for _, manager := range []string{"apt install ", "dnf install ", "apk add "} {
			if !strings.Contains(p.packages, manager) {
				t.Errorf("%s: no %q", p.name, manager)
			}
		}
	}
}
