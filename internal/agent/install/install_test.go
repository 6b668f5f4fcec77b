package install

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/kernel/proc"
	"tenon.sh/tenon/internal/machine/change"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/journal"
)

// TestUnitsAreSane checks the units for errors that systemd logs but otherwise ignores.
func TestUnitsAreSane(t *testing.T) {
	for _, u := range units {
		text, err := unitFiles.ReadFile("systemd/" + u)
		if err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		section := ""
		for line := range strings.Lines(string(text)) {
			line = strings.TrimSpace(line)
			switch {
			case line == "" || strings.HasPrefix(line, "#"):
			case strings.HasPrefix(line, "["):
				section = line
			default:
				key, value, found := strings.Cut(line, "=")
				if !found || value == "" || section == "" {
					t.Errorf("%s: %q", u, line)
				}
				if seen[section+key] {
					t.Errorf("%s: %s occurs twice in %s", u, key, section)
				}
				seen[section+key] = true
			}
		}
		for _, need := range []string{"[Service]ExecStart", "[Service]Restart", "[Service]RuntimeDirectoryPreserve", "[Install]WantedBy", "[Service]OOMScoreAdjust"} {
			if !seen[need] {
				t.Errorf("%s has no %s", u, need)
			}
		}
	}
}

// TestUnitsNamePathsThatTheServiceSees installs into an image. A path that the
// service cannot read, or that a unit cannot contain, is an error before
// anything is written.
func TestUnitsNamePathsThatTheServiceSees(t *testing.T) {
	for name, c := range map[string]struct {
		root, program, config string
		wantProgram, wantConfig,
		wantErr string
	}{
		"usual":                   {"", "/usr/local/bin/tenond", "/etc/tenon/tenon.yaml", "/usr/local/bin/tenond", "/etc/tenon/tenon.yaml", ""},
		"an image":                {"/mnt/image", "/mnt/image/usr/bin/tenond", "/etc/tenon.yaml", "/usr/bin/tenond", "/etc/tenon.yaml", ""},
		"a program beside it":     {"/mnt/image", "/mnt/image2/tenond", "etc/tenon.yaml", "", "", "is not below /mnt/image"},
		"a program at home":       {"", "/home/u/tenon/bin/tenond", "/etc/tenon.yaml", "", "", "does not see /home"},
		"a configuration of root": {"", "/usr/bin/tenond", "/root/t.yaml", "", "", "does not see /root"},
		"a temporary program":     {"/mnt/image", "/mnt/image/tmp/tenond", "/etc/tenon.yaml", "", "", "does not see /tmp"},
		"a space":                 {"", "/opt/my tenon/tenond", "/etc/tenon.yaml", "", "", `has the character " "`},
		"a specifier":             {"", "/opt/tenond", "/etc/%n.yaml", "", "", `has the character "%"`},
	} {
		s := Service{Root: c.root, Config: c.config}
		program, err := s.place(c.program)
		switch {
		case c.wantErr != "":
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%s: %v, want %q", name, err, c.wantErr)
			}
		case err != nil || program != c.wantProgram || s.Config != c.wantConfig:
			t.Errorf("%s: %s, %s, %v; want %s and %s", name, program, s.Config, err, c.wantProgram, c.wantConfig)
		}
	}
}

// TestARelativeConfigurationBecomesAbsolute checks the path, which the service
// may see or not: that depends on the place of this package.
func TestARelativeConfigurationBecomesAbsolute(t *testing.T) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	s := Service{Config: "tenon.yaml"}
	if _, err := s.place("/opt/tenond"); s.Config != filepath.Join(here, "tenon.yaml") {
		t.Errorf("%s (%v), want a path in %s", s.Config, err, here)
	}
}

// TestAnUpgradeRestartsWhatRuns checks the order: a restart before the start of
// units that did not run, so that each unit starts once.
func TestAnUpgradeRestartsWhatRuns(t *testing.T) {
	var order []string
	for _, call := range starting() {
		order = append(order, call[0])
	}
	if want := []string{"daemon-reload", "try-restart", "enable"}; !slices.Equal(order, want) {
		t.Errorf("systemctl %v, want %v", order, want)
	}
}

// TestAServiceThatObservesCannotWrite installs into an image with a configuration that
// observes, and then with one that does not.
func TestAServiceThatObservesCannotWrite(t *testing.T) {
	root := t.TempDir()
	dropIn := filepath.Join(root, observing)
	s := Service{Root: root, Config: "/etc/tenon/tenon.yaml", Out: io.Discard}
	if err := s.write(s.Config, []byte("apiVersion: tenon.sh/v1alpha1\nkind: NodeConfig\nobserve: true\n")); err != nil {
		t.Fatal(err)
	}
	observes, err := s.writeConfig()
	if err != nil || !observes {
		t.Fatalf("it observes: %v, %v", observes, err)
	}
	if err := s.confine(observes); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(dropIn)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"CapabilityBoundingSet=\nCapabilityBoundingSet=CAP_BPF CAP_PERFMON\n", "ReadWritePaths=\nReadWritePaths=/run/tenon\n", "ReadOnlyPaths=/sys\n"} {
		if !strings.Contains(string(text), line) {
			t.Errorf("the drop-in lacks %q:\n%s", line, text)
		}
	}
	if err := s.confine(false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(dropIn); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a service that acts has the drop-in: %v", err)
	}
}

// TestUninstallSaysWhatItDoes has a system without systemd, and trees without units.
func TestUninstallSaysWhatItDoes(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	if os.Geteuid() == 0 {
		err := Service{systemd: missing, Out: io.Discard}.Uninstall(t.Context(), t.TempDir())
		if err == nil || !strings.Contains(err.Error(), "run tenon restore") || strings.Contains(err.Error(), "start tenond") {
			t.Errorf("without systemd: %v", err)
		}
	}
	var out strings.Builder
	s := Service{Root: missing, Out: &out}
	if err := s.Uninstall(t.Context(), ""); err == nil || out.Len() > 0 {
		t.Errorf("a root that does not exist: %v, %q", err, out.String())
	}
	s.Root = t.TempDir()
	if err := s.Uninstall(t.Context(), ""); err != nil || out.String() != "no unit of tenond is below "+s.Root+"\n" {
		t.Errorf("an empty root: %v, %q", err, out.String())
	}
}

// TestUninstallLeavesALabThatRuns has a lab in the journal, which is
// another process than the test.
func TestUninstallLeavesALabThatRuns(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("uninstall needs root")
	}
	files, dir := proc.Default(), t.TempDir()
	boot, err := files.BootID()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lab, err := change.Identify(files, cmd.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Open(dir, boot, journal.Session{PID: lab.PID, Start: lab.Start, Lab: true})
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if err := j.Spawned(lab); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	var runs host.LabRuns
	err = Service{systemd: t.TempDir(), Out: &out}.Uninstall(t.Context(), dir)
	if !errors.As(err, &runs) || int(runs) != lab.PID || out.Len() > 0 || !change.Alive(files, lab) {
		t.Errorf("beside a lab that runs: %v, %q", err, out.String())
	}
}
