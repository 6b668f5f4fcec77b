// Package install makes tenond a systemd service, and removes it again.
package install

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"unicode/utf8"

	"tenon.sh/tenon/internal/agent/control"
	"tenon.sh/tenon/internal/config"
	"tenon.sh/tenon/internal/machine/host"
	"tenon.sh/tenon/internal/machine/lease"
	"tenon.sh/tenon/internal/machine/restore"
)

//go:embed systemd
var unitFiles embed.FS

// units are the systemd units, in the order of their start.
var units = []string{"tenond-watchdog.service", "tenond.service"}

const unitDir = "/etc/systemd/system"

// observing is the drop-in of the service while its configuration has the key observe.
const observing = unitDir + "/tenond.service.d/observe.conf"

// A Service is tenond as a systemd service.
type Service struct {
	Root   string // prefix of every path, to prepare a tree other than the running system; empty: none
	Config string // the configuration file
	Out    io.Writer

	systemd string // exists if systemd runs the system; tests set it
}

// A ConfigError says that the existing configuration file has faults or cannot
// be read.
type ConfigError struct{ error }

func (e ConfigError) Unwrap() error { return e.error }

// Install writes the configuration, if there is none, and the units. If Root is
// "", it also starts the service. If the configuration file exists and is not
// valid, Install returns a ConfigError.
func (s Service) Install(ctx context.Context) error {
	if err := s.check("install"); err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	if program, err = s.place(program); err != nil {
		return err
	}
	observes, err := s.writeConfig()
	if err != nil {
		return err
	}
	for _, u := range units {
		t, err := template.ParseFS(unitFiles, "systemd/"+u)
		if err != nil {
			return fmt.Errorf("unit %s: %w", u, err)
		}
		var text strings.Builder
		if err := t.Execute(&text, struct{ Program, Config string }{program, s.Config}); err != nil {
			return fmt.Errorf("unit %s: %w", u, err)
		}
		if err := s.write(filepath.Join(unitDir, u), []byte(text.String())); err != nil {
			return err
		}
	}
	if err := s.confine(observes); err != nil {
		return err
	}
	if s.Root != "" {
		return nil
	}
	return s.systemctl(ctx, starting())
}

// confine takes the means to write from a service that observes, and gives them back to
// one that does not.
func (s Service) confine(observes bool) error {
	if !observes {
		_, err := s.remove(observing)
		return err
	}
	text, err := unitFiles.ReadFile("systemd/observe.conf")
	if err != nil {
		return fmt.Errorf("drop-in of a service that observes: %w", err)
	}
	return s.write(observing, text)
}

// starting returns the calls of systemctl that start the service. Units that run
// already get the new program and the new settings by a restart.
func starting() [][]string {
	return [][]string{{"daemon-reload"}, append([]string{"try-restart"}, units...), append([]string{"enable", "--now"}, units...)}
}

// place returns the path of the program for the units, and makes the path of the
// configuration absolute. It returns an error if the service could not read one
// of them.
func (s *Service) place(program string) (string, error) {
	if s.Root == "" {
		config, err := filepath.Abs(s.Config)
		if err != nil {
			return "", fmt.Errorf("find the configuration file %s: %w", s.Config, err)
		}
		s.Config = config
		return program, errors.Join(
			checkPath("the program", "/usr/local/bin/tenond, and run that", program, resolved(program)),
			checkPath("the configuration file", "/etc/tenon/tenon.yaml", config, resolved(config)))
	}
	s.Config = filepath.Join("/", s.Config)
	root, err := filepath.Abs(s.Root)
	if err != nil {
		return "", fmt.Errorf("find %s: %w", s.Root, err)
	}
	below, within := strings.CutPrefix(program, strings.TrimSuffix(root, "/")+"/")
	if !within {
		return "", fmt.Errorf("tenond install: the program %s is not below %s, so the units of the image could not start it: copy it into the image, and run that one", program, s.Root)
	}
	program = "/" + below
	return program, errors.Join(checkPath("the program", "/usr/local/bin/tenond", program, program), checkPath("the configuration file", "/etc/tenon/tenon.yaml", s.Config, s.Config))
}

// resolved returns a path without symbolic links. The file may be missing.
func resolved(path string) string {
	if file, err := filepath.EvalSymlinks(path); err == nil {
		return file
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		return filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// checkPath returns an error if the units cannot name a path, or if the service
// does not see it or the file that it leads to, because of ProtectHome= and
// PrivateTmp=. better is a place that the service sees.
func checkPath(what, better, path, file string) error {
	if i := strings.IndexFunc(path, func(r rune) bool {
		return r >= utf8.RuneSelf || r <= ' ' || strings.ContainsRune(`"'\%$;*?[]`, r)
	}); i >= 0 {
		return fmt.Errorf("tenond install: %s %s has the character %q, which has a meaning in a systemd unit: choose another path", what, path, path[i:i+1])
	}
	for _, hidden := range []string{"/home", "/root", "/run/user", "/tmp", "/var/tmp"} {
		if strings.HasPrefix(path, hidden+"/") || strings.HasPrefix(file, hidden+"/") {
			return fmt.Errorf("tenond install: the service does not see %s (ProtectHome=, PrivateTmp=), where %s %s is: copy it, for example to %s", hidden, what, path, better)
		}
	}
	return nil
}

// writeConfig writes the default configuration. It keeps an existing file, but
// returns an error if the file has faults. observes is its key of that name.
func (s Service) writeConfig() (observes bool, err error) {
	path := filepath.Join(s.Root, s.Config)
	c, err := config.Load(path)
	switch {
	case err == nil:
		fmt.Fprintf(s.Out, "kept    %s\n", path)
		return c.Observe, nil
	case errors.Is(err, fs.ErrNotExist):
		return false, s.write(s.Config, config.Default())
	}
	return false, ConfigError{err}
}

func (s Service) write(path string, data []byte) error {
	path = filepath.Join(s.Root, path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return err
	}
	fmt.Fprintf(s.Out, "wrote   %s\n", path)
	return nil
}

// Uninstall stops the service, restores all knobs by the journal in stateDir, and
// removes the units. It returns an error if Tenon has left changes on the machine,
// such as a group in which a command still runs, and does nothing while a lab runs. If
// Root is not "", it only removes the units below Root.
func (s Service) Uninstall(ctx context.Context, stateDir string) error {
	if err := s.check("uninstall"); err != nil {
		return err
	}
	if s.Root != "" {
		if _, err := os.Stat(s.Root); err != nil {
			return fmt.Errorf("tenond uninstall: %w", err)
		}
		removed, err := s.removeUnits()
		if err == nil && removed == 0 {
			fmt.Fprintf(s.Out, "no unit of tenond is below %s\n", s.Root)
		}
		return err
	}
	// Any other error comes again when the knobs are put back, and the units go all the same.
	var lab host.LabRuns
	if err := checkLabs(stateDir); errors.As(err, &lab) {
		return fmt.Errorf("tenond uninstall: %w", err)
	}
	if err := s.systemctl(ctx, [][]string{append([]string{"disable", "--now"}, units...)}); err != nil {
		return err
	}
	// Remove the units even if a knob cannot be restored. tenon restore can try
	// again without them.
	left, err := PutBack(ctx, s.Out, stateDir)
	_, removeErr := s.removeUnits()
	err = errors.Join(err, left.Incomplete(), removeErr)
	return errors.Join(err, s.systemctl(ctx, [][]string{{"daemon-reload"}}))
}

// removeUnits removes the unit files, and returns how many there were. After an error, it
// continues with the next file.
func (s Service) removeUnits() (removed int, err error) {
	var errs []error
	paths := []string{observing}
	for _, u := range units {
		paths = append(paths, filepath.Join(unitDir, u))
	}
	for _, path := range paths {
		was, err := s.remove(path)
		if errs = append(errs, err); was {
			removed++
		}
	}
	return removed, errors.Join(errs...)
}

// remove removes a file, and returns false if there was none.
func (s Service) remove(path string) (removed bool, err error) {
	path = filepath.Join(s.Root, path)
	switch err := os.Remove(path); {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	fmt.Fprintf(s.Out, "removed %s\n", path)
	return true, nil
}

// checkLabs returns an error if a lab runs: to put everything back would end its processes.
func checkLabs(stateDir string) error {
	h, err := host.Open(host.Options{JournalDir: stateDir})
	if err != nil {
		return err
	}
	defer h.Close()
	return h.CheckLabs()
}

// PutBack removes the lease, so that the watchdog stops writing, and then
// restores all knobs. The report says what is left.
func PutBack(ctx context.Context, out io.Writer, stateDir string) (restore.Report, error) {
	if err := lease.Disarm(ctx, stateDir); err != nil {
		return restore.Report{}, err
	}
	h, err := host.Open(host.Options{JournalDir: stateDir})
	if err != nil {
		return restore.Report{}, err
	}
	defer h.Close()
	report, err := h.Restore(ctx)
	fmt.Fprint(out, control.Printable(report.String()))
	return report, err
}

// instead says what to do without systemd.
var instead = map[string]string{
	"install":   "start tenond under your own supervisor, or use --root to prepare an image",
	"uninstall": "stop tenond where it was started, and run tenon restore, which puts every setting back",
}

// check returns an error if a later step of the installation would fail.
func (s Service) check(what string) error {
	switch {
	case s.Root != "":
		return nil
	case os.Geteuid() != 0:
		return fmt.Errorf("tenond %s changes the system's services and needs root: use sudo", what)
	}
	if _, err := os.Stat(cmp.Or(s.systemd, "/run/systemd/system")); err != nil {
		return fmt.Errorf("tenond %s: this system is not run by systemd: %s", what, instead[what])
	}
	return nil
}

func (s Service) systemctl(ctx context.Context, calls [][]string) error {
	for _, args := range calls {
		cmd := exec.CommandContext(ctx, "systemctl", args...)
		cmd.Stdout, cmd.Stderr = s.Out, s.Out
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("systemctl %s: %w", strings.Join(args, " "), err)
		}
	}
	return nil
}
