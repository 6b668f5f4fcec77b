// Package kubectl gives the lab access to a Kubernetes cluster. It runs the
// program kubectl, so that each login method of the user works for the lab,
// too.
package kubectl

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/lab/work"
)

// Program is the program kubectl of this machine.
var Program = work.Program{Name: "kubectl", Packages: "see https://kubernetes.io/docs/tasks/tools", Version: nil}

// A Client runs kubectl.
type Client struct {
	Path string
	Args []string // arguments before the command: the context and the namespace
}

// Find returns a client for a context and a namespace. An empty context means
// the current one.
func Find(context, namespace string) (Client, error) {
	path, err := Program.Find()
	if err != nil {
		return Client{}, err
	}
	k := Client{Path: path}
	if context != "" {
		k.Args = append(k.Args, "--context", context)
	}
	k.Args = append(k.Args, "--namespace", namespace)
	return k, nil
}

// An Object is a JSON object of the Kubernetes API.
type Object = map[string]any

// Manifest encodes objects as input for kubectl apply.
func Manifest(objects []Object) string {
	var text strings.Builder
	for _, o := range objects {
		line, err := json.Marshal(o)
		if err != nil {
			panic(err) // objects hold only strings and numbers
		}
		text.Write(line)
		text.WriteString("\n")
	}
	return text.String()
}

// pipePatience is the longest time for which a child of kubectl, such as a login
// plugin, may hold the output open after kubectl has ended.
const pipePatience = time.Second

// A Reason is the reason for which the API server refuses a command
// (metav1.StatusReason). The error of the command wraps it.
type Reason string

// The reasons that the lab tells apart.
const (
	NotFound      Reason = "NotFound"
	AlreadyExists Reason = "AlreadyExists"
	Conflict      Reason = "Conflict"
)

func (r Reason) Error() string { return string(r) }

// serverReason matches the beginning of what kubectl says when the API server refuses.
var serverReason = regexp.MustCompile(`(?m)^Error from server \((\w+)\)`)

// A failure is the error of a command for which the API server gave a reason.
type failure struct {
	error
	reason Reason
}

func (f failure) Unwrap() []error { return []error{f.error, f.reason} }

// failed returns the error of a command, with what the command said.
func failed(args []string, err error, said []byte) error {
	err = fmt.Errorf("kubectl %s: %w%s", strings.Join(args, " "), err, testbed.QuoteOutput(said))
	if m := serverReason.FindSubmatch(said); m != nil {
		return failure{err, Reason(m[1])}
	}
	return err
}

// command returns a command that has not started yet.
func (k Client) command(ctx context.Context, args []string) (cmd *exec.Cmd, said *bytes.Buffer) {
	cmd, said = exec.CommandContext(ctx, k.Path, slices.Concat(k.Args, args)...), &bytes.Buffer{}
	cmd.Stderr, cmd.WaitDelay = said, pipePatience
	return cmd, said
}

// Do runs a command with a text as its standard input.
func (k Client) Do(ctx context.Context, in string, args ...string) ([]byte, error) {
	cmd, said := k.command(ctx, args)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.Output()
	switch {
	case err == nil:
		return out, nil
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, failed(args, err, said.Bytes())
}

// Get reads an object into v.
func (k Client) Get(ctx context.Context, v any, args ...string) error {
	out, err := k.Do(ctx, "", append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, v); err != nil {
		return fmt.Errorf("kubectl get %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// Raw reads a path of the API into v.
func (k Client) Raw(ctx context.Context, v any, path string) error {
	out, err := k.Do(ctx, "", "get", "--raw", path)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, v)
}

// Watch runs a command that prints a line for each change, such as get --watch.
// It passes each line to a function (see), until that returns true or an error.
// If the command ends without an error, for example because the API server ends
// a watch, Watch runs it again. If the command fails, Watch returns the error.
func (k Client) Watch(ctx context.Context, see func(line string) (done bool, err error), args ...string) error {
	for {
		done, err := k.watchOnce(ctx, see, args)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if done || err != nil {
			return err
		}
		if err := testbed.Pause(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}

func (k Client) watchOnce(ctx context.Context, see func(string) (bool, error), args []string) (done bool, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd, said := k.command(ctx, args)
	// A watch never ends by itself. If this process is killed, the kernel kills
	// the command, because the thread that started it ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, failed(args, err, nil)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if done, err = see(lines.Text()); done || err != nil {
			stop()
			_ = cmd.Wait() // the program was killed, so the error does not matter
			return done, err
		}
	}
	if err := lines.Err(); err != nil { // the program would wait until its output is read
		stop()
		_ = cmd.Wait()
		return false, failed(args, fmt.Errorf("read its output: %w", err), nil)
	}
	if err := cmd.Wait(); err != nil {
		return false, failed(args, err, said.Bytes())
	}
	return false, nil
}

// shellPatience is the maximum time in which a container must answer a line.
const shellPatience = 15 * time.Second

// A Shell runs a script in a container. For each line that the script receives,
// it prints some lines and then a line with a full stop.
type Shell struct {
	*testbed.Process
	in, out *os.File
	lines   *bufio.Scanner
}

// Open starts a script in the first container of a pod.
func (k Client) Open(pod, script string) (*Shell, error) {
	return k.Exec("the shell in pod "+pod, pod, "--", "sh", "-c", script)
}

// Exec starts a program that answers as a script does, with the arguments of kubectl
// exec. Error messages call it by name.
func (k Client) Exec(name string, args ...string) (_ *Shell, err error) {
	inRead, in, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer inRead.Close()
	out, outWrite, err := os.Pipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	defer outWrite.Close()
	s := &Shell{in: in, out: out, lines: bufio.NewScanner(out)}
	s.lines.Buffer(nil, 1<<20) // /proc/stat has one long line with all interrupts
	argv := slices.Concat([]string{k.Path}, k.Args, []string{"exec", "-i"}, args)
	if s.Process, err = testbed.Start(testbed.NoGroups{}, testbed.Child{Name: name, Argv: argv, Stdin: inRead, Stdout: outWrite}); err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	return s, nil
}

// Ask sends an empty line and returns the lines of the answer.
func (s *Shell) Ask() ([]string, error) { return s.Say("") }

// Say sends a line and returns the lines of the answer.
func (s *Shell) Say(line string) ([]string, error) {
	if _, err := s.in.WriteString(line + "\n"); err != nil {
		return nil, s.lost(err)
	}
	return s.Answer()
}

// Answer reads the output of the script up to a full stop.
func (s *Shell) Answer() (answer []string, err error) {
	_ = s.out.SetReadDeadline(time.Now().Add(shellPatience))
	for s.lines.Scan() {
		l := s.lines.Text()
		if l == "." {
			return answer, nil
		}
		answer = append(answer, l)
	}
	return nil, s.lost(errors.Join(s.lines.Err(), errors.New("no answer")))
}

func (s *Shell) lost(err error) error {
	// A program that has ended may have said why after the end of its output.
	select {
	case <-s.Done():
	case <-time.After(pipePatience):
	}
	return fmt.Errorf("%s: %w%s", s.Name, err, testbed.QuoteOutput(s.Stderr.Bytes()))
}

// Close ends the script by closing its standard input.
func (s *Shell) Close() {
	if s == nil {
		return
	}
	s.in.Close()
	s.Stop(syscall.SIGTERM, time.Second)
	s.out.Close()
}
