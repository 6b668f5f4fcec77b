package main

import (
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"tenond": func() { os.Exit(execute()) }, "tell-cgroup": tellCgroup})
}

// TestCommands runs the command lines in testdata/script.
func TestCommands(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script"})
}
