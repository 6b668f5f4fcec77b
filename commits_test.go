package tenon_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// git runs git without the user's configuration. The repository may belong to
// another user.
func git(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	return inRepository(t, dir, "git", args...)
}

func inRepository(t *testing.T, dir, name string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	cmd.Env = append(outsideGit(), "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// outsideGit returns the environment without the variables of git. In a hook and
// in git rebase --exec, git sets some that name the repository of this tree. Then
// git would use that repository, whatever the directory is.
func outsideGit() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GIT_") })
}

const checkCommits = "scripts/check-commits.sh"

// dependOn makes the test cache run a test again after a change of a file that
// only a child process reads. A file that does not exist counts as unchanged.
func dependOn(files ...string) {
	for _, name := range files {
		_, _ = os.ReadFile(name)
	}
}

// TestCommitsAreChecked makes commits with good and bad messages. Its history
// does not contain the commit from which the rule applies.
func TestCommitsAreChecked(t *testing.T) {
	script, err := filepath.Abs(checkCommits)
	if err != nil {
		t.Fatal(err)
	}
	dependOn(script)
	repo := filepath.Join(t.TempDir(), "repo")
	if text, err := git(t, ".", "init", "--quiet", repo); err != nil {
		t.Skipf("no git: %v\n%s", err, text)
	}
	lines := 0
	commit := func(changed int, message string) {
		t.Helper()
		lines += changed
		if err := os.WriteFile(filepath.Join(repo, "file"), []byte(strings.Repeat("line\n", lines)), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"add", "."}, {"commit", "--quiet", "--allow-empty", "-m", message}} {
			if text, err := git(t, repo, args...); err != nil {
				t.Fatalf("git %v: %v\n%s", args, err, text)
			}
		}
	}
	commit(50, "tenon: begin")
	for _, c := range []struct {
		message string
		changed int
		fault   string
	}{
		{"config: correct a word", 2, ""},
		{"test/e2e, scripts: do more\n\nA user needs it.", 50, ""},
		{"config: é" + strings.Repeat("x", 63), 1, ""},
		{"config: é" + strings.Repeat("x", 64), 1, "more than 72 characters"},
		{"config: do more", 50, "no body says why 50 lines changed"},
		{"config: do more\n\nSigned-off-by: A <a@example.com>", 50, "no body"},
		{"config: do more\nbecause", 50, "second line"},
		{"do more", 1, `not "package: verb what"`},
		{"Config: do more", 1, `not "package: verb what"`},
		{"config: wip", 1, "not done"},
		{"fixup! config: do more", 1, "not done"},
	} {
		commit(c.changed, c.message)
		file := filepath.Join(repo, ".git", "message")
		if err := os.WriteFile(file, []byte(c.message+"\n# a comment\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		text, err := inRepository(t, repo, script, "HEAD^..HEAD")
		if (err != nil) != (c.fault != "") || !strings.Contains(text, c.fault) {
			t.Errorf("%q with %d lines: %v %s; want %q", c.message, c.changed, err, text, c.fault)
		}
		if strings.HasPrefix(c.fault, "no body") {
			continue // no staged file
		}
		text, err = inRepository(t, repo, script, "--message", file)
		if (err != nil) != (c.fault != "") || !strings.Contains(text, c.fault) {
			t.Errorf("%q as a message that is being written: %v %s; want %q", c.message, err, text, c.fault)
		}
	}
	if text, err := inRepository(t, repo, script); err != nil {
		t.Errorf("a history without the base is checked: %v\n%s", err, text)
	}
	shallow := filepath.Join(t.TempDir(), "shallow")
	if text, err := git(t, ".", "clone", "--quiet", "--depth", "2", "file://"+repo, shallow); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if text, err := inRepository(t, shallow, script); err == nil || !strings.Contains(text, "fixup! config") {
		t.Errorf("a shallow clone is not checked: %v\n%s", err, text)
	}
}
