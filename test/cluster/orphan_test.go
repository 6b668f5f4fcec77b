package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"testing"
	"time"
)

// orphanEnv is an environment variable that names a cluster. If it is set, this
// test binary starts that cluster and waits.
const orphanEnv = "TENON_CLUSTER_ORPHAN"

func orphan(name string) {
	c, err := Up(context.Background(), Options{Name: name})
	if err == nil {
		_, err = c.AddNode(context.Background(), 0, NodeOptions{})
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println("up")
	select {}
}

// TestClusterEndsWithItsStarter kills the process that started a cluster. No
// process of the cluster may remain, and the next cluster of the same name must
// remove its files.
func TestClusterEndsWithItsStarter(t *testing.T) {
	needTurn(t)
	runParallel(t)
	const name = "orphan"
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), orphanEnv+"="+name)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 3)
	if _, err := out.Read(said); err != nil || string(said) != "up\n" {
		t.Fatalf("it said %q, %v", said, err)
	}
	c, err := Attach(name)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Up(t.Context(), Options{Name: name}); err == nil {
		t.Error("a second cluster of a name was started")
	}
	cmd.Process.Kill()
	cmd.Wait()
	requireSoon(t, 10*time.Second, "the cluster ends", func() error {
		if c.alive() {
			return errors.New("its init is there")
		}
		return nil
	})
	again, err := Up(t.Context(), Options{Name: name, Log: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.Node(0).Cgroup("cpu", "")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old node's control group is there: %v", err)
	}
	if err := again.Down(); err != nil {
		t.Error(err)
	}
}
