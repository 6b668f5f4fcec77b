package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"tenon.sh/tenon/internal/lab/site"
	"tenon.sh/tenon/internal/lab/work"
)

var kubectlProgram = work.Program{Name: "kubectl", Packages: "see https://kubernetes.io/docs/tasks/tools", Version: nil}

// A kubectl is the lab's access to a cluster. It runs the program kubectl, so
// that each login method of the user works here, too.
type kubectl struct {
	path string
	args []string // in front of the command: the context and the namespace
}

// do runs a command and gives it in as standard input.
func (k kubectl) do(ctx context.Context, in string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, k.path, append(append([]string{}, k.args...), args...)...)
	cmd.Stdin = strings.NewReader(in)
	var out, complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaint
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("kubectl %s: %w%s", strings.Join(args, " "), err, site.QuoteOutput(complaint.Bytes()))
	}
	return out.Bytes(), nil
}

// get reads an object into v.
func (k kubectl) get(ctx context.Context, v any, args ...string) error {
	out, err := k.do(ctx, "", append([]string{"get", "-o", "json"}, args...)...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(out, v); err != nil {
		return fmt.Errorf("kubectl get %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// raw reads a path of the API into v.
func (k kubectl) raw(ctx context.Context, v any, path string) error {
	out, err := k.do(ctx, "", "get", "--raw", path)
	if err != nil {
		return err
	}
	return json.Unmarshal(out, v)
}

// shellPatience is the longest time in which a container may answer a question.
const shellPatience = 15 * time.Second

// A shell runs a script in a container. For each line that it receives, the
// script prints some lines and then a line with a full stop.
type shell struct {
	*site.Process
	in, out *os.File
	lines   *bufio.Scanner
}

// open starts a script in the first container of a pod.
func (k kubectl) open(pod, script string) (_ *shell, err error) {
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
	s := &shell{in: in, out: out, lines: bufio.NewScanner(out)}
	s.lines.Buffer(nil, 1<<20) // /proc/stat has one long line with all interrupts
	argv := append(append([]string{k.path}, k.args...), "exec", "-i", pod, "--", "sh", "-c", script)
	if s.Process, err = site.Start(site.NoGroups{}, site.Child{Name: "the shell in pod " + pod, Argv: argv, Stdin: inRead, Stdout: outWrite}); err != nil {
		in.Close()
		out.Close()
		return nil, err
	}
	return s, nil
}

// ask sends a line and returns the lines of the answer.
func (s *shell) ask() ([]string, error) {
	if _, err := s.in.WriteString("\n"); err != nil {
		return nil, s.lost(err)
	}
	return s.answer()
}

// answer reads the output of the script up to a full stop.
func (s *shell) answer() (answer []string, err error) {
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

func (s *shell) lost(err error) error {
	return fmt.Errorf("%s: %w%s", s.Name, err, site.QuoteOutput(s.Stderr.Bytes()))
}

// close ends the script by closing its standard input.
func (s *shell) close() {
	if s == nil {
		return
	}
	s.in.Close()
	s.Stop(syscall.SIGTERM, time.Second)
	s.out.Close()
}
