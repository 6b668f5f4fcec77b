package match

import (
	"slices"
	"strings"

	"tenon.sh/tenon/internal/model/node"
)

// A glob is one pattern of a rule, in a form that is fast to match with many
// paths.
type glob struct {
	rule  int
	of    subject
	fixed string   // the literal text at the beginning of the pattern
	parts []string // components of a path, or the key and value of a label

	// system says that units of users do not match. Each user may start a unit
	// with the name of a service, and would get its class, CPUs and memory.
	system bool
}

// A subject is the kind of thing that a glob matches.
type subject int8

const (
	aPath  subject = iota
	aUnit          // the last component of a path
	aName          // name of a container
	aLabel         // label of a container
)

// globsOf returns the patterns of all rules, in the order of the rules.
func globsOf(rules []Rule) []glob {
	var all []glob
	for i, r := range rules {
		for _, pattern := range r.Cgroups {
			all = append(all, pathGlob(i, pattern))
		}
		for _, pattern := range r.Units {
			g := unitGlob(i, pattern)
			g.system = r.Class != node.BE
			all = append(all, g)
		}
		for _, pattern := range r.Containers {
			all = append(all, containerGlob(i, pattern))
		}
	}
	return all
}

func pathGlob(rule int, pattern string) glob {
	pattern = strings.TrimPrefix(pattern, "/")
	return glob{rule: rule, fixed: fixedPrefix(pattern), parts: strings.Split(pattern, "/")}
}

func unitGlob(rule int, pattern string) glob {
	pattern = unitName(pattern)
	return glob{rule: rule, of: aUnit, fixed: fixedPrefix(pattern), parts: []string{pattern}}
}

func containerGlob(rule int, pattern string) glob {
	key, value, isLabel := strings.Cut(pattern, "=")
	if isLabel {
		return glob{rule: rule, of: aLabel, fixed: fixedPrefix(key), parts: []string{key, value}}
	}
	return glob{rule: rule, of: aName, fixed: fixedPrefix(pattern), parts: []string{pattern}}
}

// fixedPrefix returns the literal text before the first wildcard of a pattern.
func fixedPrefix(pattern string) string {
	if i := strings.IndexAny(pattern, "*?["); i >= 0 {
		return pattern[:i]
	}
	return pattern
}

// matchesGroup reports whether the glob matches e. name is the last component
// of the path of e.
func (g glob) matchesGroup(e *entry, name string) bool {
	switch g.of {
	case aName:
		return e.container != nil && matchName(g.parts[0], e.container.Name)
	case aLabel:
		return e.container != nil && g.matchesLabel(e.container.Labels)
	}
	return g.matches(string(e.path), name)
}

// matches reports whether a glob over paths or units matches.
func (g glob) matches(path, name string) bool {
	if g.of == aUnit {
		return strings.HasPrefix(name, g.fixed) && matchName(g.parts[0], name) && !(g.system && isOfUser(path))
	}
	return strings.HasPrefix(path, g.fixed) && matchPath(g.parts, path)
}

// isOfUser reports whether a group belongs to the service manager of a user,
// which systemd runs in user@UID.service.
func isOfUser(path string) bool {
	_, below, found := strings.Cut(path, "/user@")
	if !found {
		return false
	}
	manager, _, inside := strings.Cut(below, "/")
	return inside && strings.HasSuffix(manager, ".service")
}

func (g glob) matchesLabel(all map[string]string) bool {
	for key, value := range all {
		if strings.HasPrefix(key, g.fixed) && matchName(g.parts[0], key) && matchName(g.parts[1], value) {
			return true
		}
	}
	return false
}

// matchPath matches a glob with a path. After a mismatch it returns only to the
// last **, because the earliest match of all components before that is enough.
// The time is therefore at most the product of the lengths.
func matchPath(parts []string, path string) bool {
	var tail []string // the pattern after the last **
	var from string   // the rest of the path at which tail was last tried
	for {
		switch {
		case len(parts) == 1 && parts[0] == "**":
			return path != ""
		case len(parts) > 0 && parts[0] == "**":
			parts = parts[1:]
			tail, from = parts, path
			continue
		case len(parts) == 0 && path == "":
			return true
		case len(parts) > 0 && path != "":
			name, rest, _ := strings.Cut(path, "/")
			if matchName(parts[0], name) {
				parts, path = parts[1:], rest
				continue
			}
		}
		if from == "" {
			return false
		}
		_, from, _ = strings.Cut(from, "/")
		parts, path = tail, from
	}
}

// matchName matches a glob with one component, as matchPath does with a path.
// Characters take the place of components, and * that of **.
func matchName(pattern, name string) bool {
	var tail, from string
	for {
		switch {
		case pattern == "*":
			return true
		case pattern != "" && pattern[0] == '*':
			pattern = pattern[1:]
			tail, from = pattern, name
			continue
		case pattern == "" && name == "":
			return true
		case pattern != "" && name != "":
			if p, n, ok := matchCharacter(pattern, name); ok {
				pattern, name = pattern[p:], name[n:]
				continue
			}
		}
		if from == "" {
			return false
		}
		_, n := character(from)
		from = from[n:]
		pattern, name = tail, from
	}
}

// matchCharacter matches the first character of a name. It returns how many
// bytes of the pattern and of the name belong to the match.
func matchCharacter(pattern, name string) (p, n int, ok bool) {
	switch pattern[0] {
	case '?':
		_, n = character(name)
		return 1, n, true
	case '[':
		c, n := character(name)
		s, p, err := parseSet(pattern)
		return p, n, err == nil && s.has(c)
	}
	return 1, 1, pattern[0] == name[0]
}

// character returns the first character of a non-empty text, and its length. An
// invalid UTF-8 byte counts as one character.
func character(text string) (c rune, length int) {
	for i, r := range text {
		if i > 0 {
			return c, i
		}
		c = r
	}
	return c, len(text)
}

// otherSuffixes are the kinds of units that are not in node.UnitSuffixes.
var otherSuffixes = []string{".socket", ".mount", ".swap", ".timer", ".target", ".path", ".device", ".automount"}

// unitName adds the suffix that systemctl would add to a name.
func unitName(pattern string) string {
	if hasSuffix(pattern, node.UnitSuffixes) {
		return pattern
	}
	return pattern + ".service"
}

func hasSuffix(text string, suffixes []string) bool {
	return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(text, s) })
}
