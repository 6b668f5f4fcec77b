package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

// Await starts c, waits until it ends, and returns its output.
func (s *Site) Await(ctx context.Context, c Child) ([]byte, error) {
	var out bytes.Buffer
	c.Stdout = &out
	p, err := Start(s.Groups(), c)
	if err != nil {
		return nil, err
	}
	defer p.Kill()
	select {
	case <-ctx.Done():
		p.Stop(syscall.SIGTERM, time.Second)
		return nil, ctx.Err()
	case <-p.Done():
	}
	if err := p.Err(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// selfArgv returns the default of Setting.Self.
func selfArgv() ([]string, error) {
	path, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return []string{path, "lab", "child"}, nil
}
