package scx

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
)

func TestLoadsAndUnloads(t *testing.T) {
	s := newStage(t)
	sched := s.load(Options{})
	st := s.status(sched)
	if !st.Running {
		t.Fatalf("it does not run: %+v", st)
	}
	begun := time.Now()
	if err := sched.Close(); err != nil {
		t.Fatal(err)
	}
	t.Logf("closed after %v", time.Since(begun))
	now, err := readLoaded(sysfs)
	if err != nil || now.state != disabled {
		t.Errorf("after Close: %+v, %v", now, err)
	}
}

func verifierLog(err error) string {
	var v *ebpf.VerifierError
	if errors.As(err, &v) && os.Getenv("TENON_SCX_LOG") != "" {
		n := len(v.Log)
		for _, line := range v.Log[max(0, n-120):] {
			println(line)
		}
	}
	return ""
}
