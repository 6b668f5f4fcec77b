// Package work contains the programs that experiments run: nginx, ffmpeg with
// its film, jobs that consist of several processes, and spinners.
package work

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"tenon.sh/tenon/internal/lab/testbed"
)

// A Program is an installed program that the experiment runs.
type Program struct {
	Name string
	// Packages says how to install it. scripts/install-deps.sh reads the package of
	// apt from the line of each Program.
	Packages string
	Version  []string // arguments that make it print its version
	Dirs     string   // a pattern of more directories that may have it
}

var (
	FFmpegProgram = Program{Name: "ffmpeg", Packages: "apt install ffmpeg | dnf install ffmpeg (from RPM Fusion, for libx264) | apk add ffmpeg", Version: []string{"-version"}}
	WrkProgram    = Program{Name: "wrk", Packages: "apt install wrk | dnf install wrk | apk add wrk"}
)

// Find returns the path of the program. It also searches directories that may be
// missing in PATH: sbin, and Dirs, of which the last one by name is the first.
func (p Program) Find() (string, error) {
	if path, err := exec.LookPath(p.Name); err == nil {
		return filepath.Abs(path)
	}
	more, _ := filepath.Glob(p.Dirs) //nolint:errcheck // the pattern is valid
	slices.Reverse(more)
	for _, dir := range append([]string{"/usr/sbin", "/usr/local/sbin", "/sbin"}, more...) {
		path := filepath.Join(dir, p.Name)
		if info, err := os.Stat(path); err == nil && info.Mode().Perm()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("%s is not installed: %s", p.Name, p.Packages)
}

// A Version is the first two numbers of a program's version. The zero Version
// means that the version is unknown. It counts as newer than all others.
type Version struct{ Major, Minor int }

// AtLeast reports whether v is major.minor or newer.
func (v Version) AtLeast(major, minor int) bool {
	return v == Version{} || v.Major > major || v.Major == major && v.Minor >= minor
}

var versionNumbers = regexp.MustCompile(`(?:version |nginx/|wrk )n?v?(\d+)\.(\d+)\S*`)

// parseVersion finds the version in what a program prints, such as "nginx
// version: nginx/1.22.1" or "ffmpeg version 5.1.6-0+deb12u1 Copyright …".
func parseVersion(text string) (Version, string) {
	m := versionNumbers.FindStringSubmatch(text)
	if m == nil {
		line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
		return Version{}, line
	}
	major, _ := strconv.Atoi(m[1]) //nolint:errcheck // digits; a number that is too large stays the largest
	minor, _ := strconv.Atoi(m[2]) //nolint:errcheck // as above
	words := strings.FieldsFunc(m[0], func(r rune) bool { return r == ' ' || r == '/' })
	return Version{major, minor}, words[len(words)-1]
}

// Ask runs the program to ask for its version.
func (p Program) Ask(ctx context.Context, path string) (Version, string, error) {
	out, err := exec.CommandContext(ctx, path, p.Version...).CombinedOutput()
	if err != nil {
		return Version{}, "", fmt.Errorf("ask %s for its version: %w%s", path, err, testbed.QuoteOutput(out))
	}
	v, text := parseVersion(string(out))
	return v, text, nil
}

// CheckEncoder returns an error if ffmpeg cannot encode H.264 with libx264.
// Some distributions build ffmpeg without it.
func CheckEncoder(ctx context.Context, ffmpeg string) error {
	out, err := exec.CommandContext(ctx, ffmpeg, "-hide_banner", "-loglevel", "error", "-encoders").CombinedOutput()
	if err != nil {
		return fmt.Errorf("ask %s for its encoders: %w%s", ffmpeg, err, testbed.QuoteOutput(out))
	}
	if !strings.Contains(string(out), "libx264") {
		return fmt.Errorf("%s cannot encode H.264 with libx264: %s", ffmpeg, FFmpegProgram.Packages)
	}
	return nil
}
