package work

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
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
	p := Program{Name: "no-such-program", Packages: "apt install x | dnf install y | apk add z"}
	_, err := p.Find()
	if err == nil || err.Error() != "no-such-program is not installed: apt install x | dnf install y | apk add z" {
		t.Errorf("error %v", err)
	}
	for _, p := range []Program{NGINXProgram, FFmpegProgram, WrkProgram} {
		for _, manager := range []string{"apt install ", "dnf install ", "apk add "} {
			if !strings.Contains(p.Packages, manager) {
				t.Errorf("%s: no %q", p.Name, manager)
			}
		}
	}
}

// countingGroups is a Groups that only counts the living processes.
type countingGroups struct{ live int }

func (c *countingGroups) Attach(node.CgroupPath, int) error { return nil }
func (c *countingGroups) Spawned(int) error                 { c.live++; return nil }
func (c *countingGroups) Reaped(int) error                  { c.live--; return nil }

func TestFailingNGINXSaysWhy(t *testing.T) {
	path, err := NGINXProgram.Find()
	if err != nil {
		t.Skip(err)
	}
	port, err := freePort(0)
	if err != nil {
		t.Fatal(err)
	}
	n := NGINX{Path: path, Dir: t.TempDir(), Address: fmt.Sprintf("127.0.0.1:%d", port), Workers: 1}
	if err := n.Prepare(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.file("nginx.conf"), []byte("worker_processes many;"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := &countingGroups{}
	_, err = n.Start(context.Background(), m, "g", unit.CPUSet{})
	if err == nil || !strings.Contains(err.Error(), `"worker_processes"`) && !strings.Contains(err.Error(), "invalid value") {
		t.Errorf("error %v", err)
	}
	if m.live != 0 {
		t.Errorf("%d processes are left", m.live)
	}
}
