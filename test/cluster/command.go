package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Command returns a command in the cluster's namespaces: network, PIDs and
// mounts. It has the built programs on PATH, the KUBECONFIG of admin and the
// caller's working directory. The end of the context kills the command.
//
// The started process is the parent of the command: see [PID].
func (c *Cluster) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return c.commandInside(ctx, 0, name, args...)
}

// commandInside returns a command as Command does. If inner is not 0, it is the
// PID in the cluster of a process whose mount namespace the command also
// enters.
func (c *Cluster) commandInside(ctx context.Context, inner int, name string, args ...string) *exec.Cmd {
	// setpriv kills the command when its parent nsenter is killed.
	argv := []string{"-t", strconv.Itoa(c.Init), "-m", "-n", "-p", "setpriv", "--pdeathsig", "KILL"}
	if inner != 0 {
		argv = append(argv, "nsenter", "-t", strconv.Itoa(inner), "-m")
	}
	if dir, err := os.Getwd(); err == nil {
		argv = append(argv, "env", "-C", dir)
	}
	cmd := exec.CommandContext(ctx, "nsenter", append(append(argv, name), args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig("admin"), "PATH="+c.Bin+":"+os.Getenv("PATH"))
	return cmd
}

// PID returns the PID, on this machine, of the program that a command of
// [Cluster.Command] or [Node.Command] runs. Signals must go to this PID.
func PID(cmd *exec.Cmd) (pid int, err error) {
	err = retry(context.Background(), 10*time.Second, func() error {
		parent := cmd.Process.Pid
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", parent, parent))
		if err != nil {
			return err
		}
		if pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
			return fmt.Errorf("process %d has no child", parent)
		}
		// These programs run first, and then execute the program of the caller.
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		switch passing := strings.TrimSpace(string(name)); passing {
		case "nsenter", "setpriv", "env":
			return fmt.Errorf("process %d is still %s", pid, passing)
		}
		return err
	})
	return pid, err
}

// Kubectl runs kubectl as admin and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	return c.KubectlApply(ctx, "", args...)
}

// KubectlApply runs kubectl with the given standard input, for kubectl apply -f -.
func (c *Cluster) KubectlApply(ctx context.Context, input string, args ...string) (string, error) {
	cmd := c.Command(ctx, "kubectl", args...)
	cmd.Stdin = strings.NewReader(input)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// daemon starts a program that lives as long as the cluster. If inner is not 0,
// it is the PID in the cluster of a process whose mount namespace the program
// enters. The output goes to NAME.log, and the program's PID in the cluster to
// NAME.pid.
func (c *Cluster) daemon(inner int, name string, argv ...string) (*daemon, error) {
	d := &daemon{cluster: c, name: name}
	if err := os.Remove(name + ".pid"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	out, err := os.OpenFile(d.name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	// The shell forks, so that the program becomes a child of the cluster's
	// init. Init outlives the process that starts the program, and reaps the
	// program.
	const script = `echo $$ >"$0.part" && mv "$0.part" "$0.pid" && exec "$@"`
	cmd := c.commandInside(context.Background(), inner, "setsid", append([]string{"--fork", "sh", "-c", script, name}, argv...)...)
	cmd.Args = withoutDeathSignal(cmd.Args)
	cmd.Stdout, cmd.Stderr = out, out
	if err := c.runOnSystemCPUs(cmd.Run); err != nil {
		return nil, fmt.Errorf("start %s: %w: %s", argv[0], err, tail(d.name+".log"))
	}
	return d, nil
}

// A daemon is a program of the cluster. name is the path of its files NAME.log
// and NAME.pid, without the suffix.
type daemon struct {
	cluster *Cluster
	name    string
}

// pid returns the program's PID inside the cluster.
func (d *daemon) pid() (int, error) {
	text, err := os.ReadFile(d.name + ".pid")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// checkRunning returns an error if the program has ended.
func (d *daemon) checkRunning() error {
	pid, err := d.pid()
	if errors.Is(err, fs.ErrNotExist) {
		return nil // the file is not written yet
	}
	if err != nil || startTimeOf(fmt.Sprintf("/proc/%d/root/proc/%d", d.cluster.Init, pid)) == "" {
		return fmt.Errorf("%w: %s ended: %s", errFinal, filepath.Base(d.name), tail(d.name+".log"))
	}
	return nil
}

// kill kills the program with SIGKILL, as if it had crashed.
func (d *daemon) kill(ctx context.Context) error {
	pid, err := d.pid()
	if err != nil {
		return fmt.Errorf("stop %s: %w", d.name, err)
	}
	// A minimal Debian has no program kill, but the shell has a command.
	if out, err := d.cluster.Command(ctx, "sh", "-c", fmt.Sprintf("kill -KILL %d", pid)).CombinedOutput(); err != nil {
		return fmt.Errorf("stop %s: %w: %s", d.name, err, out)
	}
	return nil
}

func withoutDeathSignal(args []string) []string {
	i := slices.Index(args, "setpriv")
	return slices.Delete(slices.Clone(args), i, i+3)
}

// tail returns the end of a log, for an error message.
func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], "\n")
}
