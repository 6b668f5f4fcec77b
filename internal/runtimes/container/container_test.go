package container

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	idA = "d31df9d768a9012ce5a5da71b21b4a2191c91b914c0d2fa53bea524ea6e2935a"
	idB = "5ffb6663982302271ed1e0b17bc6a6eb04f2fa22033dbe253a43a7fb016c1cad"
)

// serve runs a model of Docker's engine, which answers a request for the containers
// with the given text. Like Docker 29, it refuses versions of the API in the URL.
func serve(t *testing.T, status int, text string) (address string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, text := status, text
		switch {
		case strings.HasPrefix(r.URL.Path, "/v1."):
			status, text = http.StatusBadRequest, "client version is too old"
		case r.URL.Path != "/containers/json" || r.URL.Query().Get("all") != "1":
			status, text = http.StatusNotFound, "what is "+r.URL.String()
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	})}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = server.Close() })
	return "docker://" + socket
}

func list(t *testing.T, address string) ([]Container, error) {
	t.Helper()
	r, err := Open(address)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return r.List(t.Context())
}

func TestDockerListsWhatHasNotEnded(t *testing.T) {
	got, err := list(t, serve(t, http.StatusOK, `[
		{"Id":"`+idA+`","Names":["/web"],"Image":"","Labels":{"koordinator.sh/qosClass":"LS"},"State":"running","Status":"Up"},
		{"Id":"`+idB+`","Names":[],"Labels":null,"State":"created"},
		{"Id":"gone","Names":["/gone"],"Labels":{},"State":"exited"}
	]`))
	want := []Container{{ID: idA, Name: "web", Labels: map[string]string{"koordinator.sh/qosClass": "LS"}}, {ID: idB, Name: idB}}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
}

func TestARuntimeThatDoesNotAnswerIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		text   string
	}{
		"no JSON":       {http.StatusOK, "hello"},
		"half a list":   {http.StatusOK, `[{"Id":"a"`},
		"a server down": {http.StatusServiceUnavailable, "{}"},
	} {
		if got, err := list(t, serve(t, c.status, c.text)); err == nil {
			t.Errorf("%s: got %v", name, got)
		}
	}
	why := `{"message":"the daemon is busy"}` + strings.Repeat(".", maxSaid)
	if _, err := list(t, serve(t, http.StatusServiceUnavailable, why)); err == nil ||
		!strings.Contains(err.Error(), "503 Service Unavailable: "+why[:maxSaid]) || strings.Contains(err.Error(), why) {
		t.Errorf("the error does not contain the start of the answer: %v", err)
	}
	if _, err := Open("docker://" + filepath.Join(t.TempDir(), "none")); !errors.Is(err, ErrAbsent) {
		t.Errorf("no socket: %v", err)
	}
	for _, address := range []string{"", "/run/docker.sock", "lxd:///run/lxd.sock", "docker://run/docker.sock"} {
		if _, err := Open(address); err == nil || errors.Is(err, ErrAbsent) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

func TestARuntimeThatHangsIsLeft(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // accepts connections, but never answers
	for _, kind := range []string{"docker", "containerd"} {
		r, err := Open(kind + "://" + socket)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 1)
		if _, err := r.List(ctx); err == nil {
			t.Errorf("%s: no error", kind)
		}
		cancel()
		_ = r.Close()
	}
}

func TestContainersHaveTheirCgroups(t *testing.T) {
	paths := []string{
		"docker", "docker/" + idA, "docker/" + idA + "/init", "machine.slice/libpod-conmon-" + idB + ".scope",
		"machine.slice/libpod-" + idB + ".scope", "machine.slice/libpod-" + idB + ".scope/container", "default", "default/job",
		"kubepods/pod1/cri-containerd-c1.scope", "system.slice:cri:c2",
	}
	of := func(pid int) (string, bool) {
		path, known := map[int]string{
			1: "/default/job", 2: "/", 3: "/kubepods/pod1/cri-containerd-c1.scope/system.slice", 4: "/system.slice:cri:c2/a",
			5: "/default/gone",
		}[pid]
		return path, known
	}
	all := []Container{
		{ID: idA, Name: "a", PID: 2}, {ID: idB, Name: "b"}, {ID: "job", Name: "job", PID: 1}, {ID: "c1", Name: "c", PID: 3},
		{ID: "c2", Name: "d", PID: 4}, {ID: "ended", PID: 9}, {ID: "gone", PID: 5}, {ID: "host", PID: 2}, {ID: strings.Repeat("0", 64), Name: "created"},
	}
	Locate(all, of)
	var got []string
	for path, c := range Groups(all, paths) {
		got = append(got, path+" "+c.Name)
	}
	want := []string{
		"default/job job", "docker/" + idA + " a", "kubepods/pod1/cri-containerd-c1.scope c",
		"machine.slice/libpod-" + idB + ".scope b", "system.slice:cri:c2 d",
	}
	if d := cmp.Diff(want, sorted(got)); d != "" {
		t.Error(d)
	}
}

// TestARootlessRuntimeHasOnlyCgroupsOfItsUser lets a runtime of user 7 claim the
// container of another runtime, by its ID and by a process in it.
func TestARootlessRuntimeHasOnlyCgroupsOfItsUser(t *testing.T) {
	own := "user.slice/user-7.slice/user@7.service/user.slice/libpod-" + idB + ".scope"
	paths := []string{"system.slice/docker-" + idA + ".scope", "default/job", own, "user.slice/user-77.slice/x"}
	all := []Container{
		{ID: idA, Name: "db"}, {ID: idA, Name: "claimed", User: 7}, {ID: "job", Name: "located", Cgroup: "default/job", User: 7},
		{ID: idB, Name: "own", User: 7}, {ID: "x", Name: "neighbour", Cgroup: "user.slice/user-77.slice/x", User: 7},
	}
	got := map[string]string{}
	for path, c := range Groups(all, paths) {
		got[path] = c.Name
	}
	if d := cmp.Diff(map[string]string{paths[0]: "db", own: "own"}, got); d != "" {
		t.Error(d)
	}
}

func TestOnlySomeCgroupsCanBeContainers(t *testing.T) {
	docker, all := []string{"docker:///run/docker.sock"}, Sockets
	for _, c := range []struct {
		path      string
		addresses []string
		want      bool
	}{
		{"system.slice/docker-" + idA + ".scope", docker, true},
		{"docker/" + idA, docker, true},
		{"docker/" + idA, nil, false},
		{"docker/" + idA + "/init", docker, false},
		{"machine.slice/libpod-conmon-" + idA + ".scope", docker, false},
		{"system.slice/podman.service", all, false},
		{"system.slice/podman.socket", all, false},
		{"user.slice", all, false},
		{"default/job", docker, false},
		{"default/job", all, true},
		{"kubepods.slice/cri-containerd-c1.scope", all, true},
		{"job", nil, false},
	} {
		if got := CanBe(c.path, c.addresses); got != c.want {
			t.Errorf("%s at %v: %v", c.path, c.addresses, got)
		}
	}
}

func sorted(s []string) []string {
	slices.Sort(s)
	return s
}
