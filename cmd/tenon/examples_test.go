package main

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"tenon.sh/tenon/internal/lab"
)

// TestExamplesAreCommandLines parses every command line of Tenon in the help
// texts, in the README and in the pages of docs. It does not run them.
func TestExamplesAreCommandLines(t *testing.T) {
	var lines []string
	var collect func(*cobra.Command)
	collect = func(c *cobra.Command) {
		if c.Name() == "help" || c.Name() == "completion" {
			return // of the library
		}
		if !c.Hidden && c.Example == "" && !c.HasSubCommands() {
			t.Errorf("%s has no example", c.CommandPath())
		}
		lines = append(lines, strings.Split(c.Example, "\n")...)
		for _, sub := range c.Commands() {
			collect(sub)
		}
	}
	collect(newRootCommand())
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) < 5 {
		t.Fatal(pages, err)
	}
	for _, page := range append(pages, "../../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, strings.Split(string(text), "\n")...)
	}

	tried := 0
	for _, line := range lines {
		args, ours := commandLine(line)
		if !ours {
			continue
		}
		tried++
		root := newRootCommand()
		root.InitDefaultCompletionCmd()
		cmd, rest, err := root.Find(args)
		if err == nil && cmd == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			err = root.Args(root, rest)
		}
		if err == nil {
			err = cmd.ParseFlags(rest)
		}
		if err == nil && cmd.HasSubCommands() {
			err = cmd.ValidateArgs(cmd.Flags().Args())
		}
		if err != nil {
			t.Errorf("%s: %v", strings.TrimSpace(line), err)
		}
	}
	if tried < 10 {
		t.Errorf("found %d command lines: the test looks in the wrong place", tried)
	}
}

// TestEveryExperimentHasACommand compares the kinds of experiments with the
// commands of tenon lab. The kind of the colocation experiment is empty.
func TestEveryExperimentHasACommand(t *testing.T) {
	for kind := range lab.Kinds {
		name := cmp.Or(kind, "colocation")
		cmd, _, err := newRootCommand().Find([]string{"lab", name})
		if err != nil || cmd.Name() != name {
			t.Errorf("tenon lab %s is not a command", name)
		}
	}
}

// TestAShellOffersFilesWhereAFileIsWanted compares the text of each flag with what
// a shell offers for it.
func TestAShellOffersFilesWhereAFileIsWanted(t *testing.T) {
	file := regexp.MustCompile("^(film|(the |the state )?directory|the file of|report on the nodes of this table)|configuration file|in this directory|to this file")
	var look func(*cobra.Command)
	look = func(c *cobra.Command) {
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			_, files := f.Annotations[cobra.BashCompFilenameExt]
			_, dirs := f.Annotations[cobra.BashCompSubdirsInDir]
			if f.NoOptDefVal == "" && (files || dirs) != file.MatchString(f.Usage) {
				t.Errorf("%s --%s (%s): a shell offers files: %v", c.CommandPath(), f.Name, f.Usage, files || dirs)
			}
		})
		for _, sub := range c.Commands() {
			look(sub)
		}
	}
	look(newRootCommand())
}

// commandLine returns the arguments if line is a call of Tenon, with or without
// sudo.
func commandLine(line string) ([]string, bool) {
	line, _, _ = strings.Cut(line, " #")
	line, _, _ = strings.Cut(line, " | ")
	words := wordsOf(line)
	if len(words) > 0 && words[0] == "sudo" {
		words = words[1:]
	}
	if len(words) == 0 || words[0] != "tenon" && words[0] != "bin/tenon" {
		return nil, false
	}
	return words[1:], true
}

// wordsOf splits a line as a shell does. It supports only single quotes.
func wordsOf(line string) []string {
	quoted := false
	return strings.FieldsFunc(strings.Map(func(r rune) rune {
		switch {
		case r == '\'':
			quoted = !quoted
			return -1
		case r == ' ' && !quoted:
			return '\n'
		}
		return r
	}, line), func(r rune) bool { return r == '\n' })
}
