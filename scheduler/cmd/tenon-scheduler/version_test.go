package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTheVersionIsThatOfTenonAndOfKubernetes runs the test again as the program,
// because the library ends the program after it has printed its version.
func TestTheVersionIsThatOfTenonAndOfKubernetes(t *testing.T) {
	const asProgram = "TENON_TEST_AS_PROGRAM"
	if os.Getenv(asProgram) != "" {
		version, os.Args = "v9", []string{"tenon-scheduler", "--version"}
		main()
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	out, err := cmd.Output()
	if err != nil || !strings.HasPrefix(string(out), "tenon-scheduler v9 go1.") || !strings.Contains(string(out), "\nKubernetes v") {
		t.Errorf("%v, %q", err, out)
	}
}
