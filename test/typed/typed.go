// Package typed reads the shell commands of a page of the documentation, so that
// tests run what the page tells a reader to type. It also lists the tests that a
// page may name.
package typed

import "strings"

// A Command is one line of a shell block.
type Command struct {
	Line int // in the page, from 1
	// Text is the command without its comment, as written: "sudo bin/tenon top".
	Text string
}

// Commands returns the commands of a page in order. It reads the blocks
// "```sh". It also reads blocks that are indented by four spaces, if they begin
// with one of the programs. A line that continues a comment is not a command.
func Commands(text string, programs ...string) []Command {
	var all []Command
	shell, fenced, before := false, false, ""
	for i, line := range strings.Split(text, "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "```"):
			shell, fenced = !fenced && trimmed == "```sh", !fenced
		case shell, !fenced && strings.HasPrefix(line, "    ") && (before == "" || strings.HasPrefix(before, "    ")) && begins(trimmed, programs):
			if command := withoutComment(trimmed); command != "" {
				all = append(all, Command{i + 1, command})
			}
		}
		before = line
	}
	return all
}

func begins(line string, programs []string) bool {
	first, _, _ := strings.Cut(strings.TrimPrefix(line, "sudo "), " ")
	for _, p := range programs {
		if first == p {
			return true
		}
	}
	return false
}

func withoutComment(line string) string {
	if strings.HasPrefix(line, "#") {
		return ""
	}
	line, _, _ = strings.Cut(line, " #")
	return strings.TrimSpace(line)
}

// Bare returns a command without sudo and without the folder of the program.
// For "sudo bin/tenon top" and "tenon top", it returns the same.
func (c Command) Bare() string {
	return strings.TrimPrefix(strings.TrimPrefix(c.Text, "sudo "), "bin/")
}
