package match

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestGlobsOverPaths(t *testing.T) {
	for name, c := range map[string]struct {
		pattern string
		yes, no []string
	}{
		"a path stands for itself":       {"batch.slice/a", []string{"batch.slice/a"}, []string{"batch.slice", "batch.slice/a/b", "batch.slice/ab", "x/batch.slice/a"}},
		"a leading slash means nothing":  {"/batch.slice", []string{"batch.slice"}, []string{"a/batch.slice"}},
		"* stays in its component":       {"a/*", []string{"a/b", "a/c.service"}, []string{"a", "a/b/c", "b/a"}},
		"* also stands for nothing":      {"a*c", []string{"ac", "abc", "a-c-c"}, []string{"ab", "a/c"}},
		"? is one character":             {"pod-?", []string{"pod-1", "pod-é"}, []string{"pod-", "pod-12", "pod-/"}},
		"a set":                          {"cpu[0-2x]", []string{"cpu0", "cpu2", "cpux"}, []string{"cpu3", "cpu-", "cpu"}},
		"a set of what is not in it":     {"cpu[!0-2]", []string{"cpu3", "cpux"}, []string{"cpu1", "cpu"}},
		"brackets and dashes in a set":   {"a[]-]", []string{"a]", "a-"}, []string{"a[", "ab"}},
		"a star as itself":               {"a[*]", []string{"a*"}, []string{"ab"}},
		"** at the end is all below":     {"a/**", []string{"a/b", "a/b/c"}, []string{"a", "ab/c"}},
		"** in front is any depth":       {"**/x", []string{"x", "a/x", "a/b/x"}, []string{"x/a", "ax"}},
		"** in the middle":               {"a/**/x", []string{"a/x", "a/b/x", "a/x/x", "a/b/c/x"}, []string{"a", "x", "a/xx", "b/x"}},
		"** and ** again":                {"**/a/**/b/**", []string{"a/b/c", "x/a/y/b/z", "a/b/a/b/a"}, []string{"a/b", "b/a/c"}},
		"** alone is all but the root":   {"**", []string{"a", "a/b"}, []string{""}},
		"a backslash is a backslash":     {`**/dev-x\x2dy.swap`, []string{`system.slice/dev-x\x2dy.swap`}, []string{"dev-x-y.swap"}},
		"a set that does not close":      {"a[b", nil, []string{"ab", "a[b"}},
		"a range the wrong way round":    {"a[z-a]", nil, []string{"am", "a-"}},
		"the earliest match is not last": {"**/a/b", []string{"a/a/b", "a/b/a/b"}, []string{"a/b/a"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := pathGlob(0, c.pattern)
			for _, path := range c.yes {
				if !g.matches(path, "") {
					t.Errorf("%s does not match %s", c.pattern, path)
				}
			}
			for _, path := range c.no {
				if g.matches(path, "") {
					t.Errorf("%s matches %s", c.pattern, path)
				}
			}
		})
	}
}

func TestUnitsAreFoundAnywhereByTheirLastComponent(t *testing.T) {
	for pattern, c := range map[string]struct{ yes, no []string }{
		"nginx":           {[]string{"nginx.service", "system.slice/nginx.service"}, []string{"nginx", "nginx.service/worker", "nginx.slice"}},
		"nginx.service":   {[]string{"a/b/nginx.service"}, []string{"a/nginx.service.d"}},
		"batch-*":         {[]string{"batch-1.service", "x/batch-.service"}, []string{"batch-1.slice", "a/batch-1"}},
		"batch.slice":     {[]string{"batch.slice"}, []string{"batch.slice/a.service"}},
		"session-?.scope": {[]string{"user.slice/session-1.scope"}, []string{"session-12.scope"}},
		"getty@*.service": {[]string{"system.slice/system-getty.slice/getty@tty1.service"}, []string{"system.slice/getty.service"}},
	} {
		g := unitGlob(0, pattern)
		for want, paths := range map[bool][]string{true: c.yes, false: c.no} {
			for _, path := range paths {
				if g.matches(path, path[strings.LastIndexByte(path, '/')+1:]) != want {
					t.Errorf("%s and %s: want match %v", pattern, path, want)
				}
			}
		}
	}
}

// A naive matcher would try every way to divide the path among the stars, which
// takes exponential time.
func TestManyStarsTakeNoLongerThanTheLengthsAsk(t *testing.T) {
	deep := strings.Repeat("a/", 300) + "a"
	long := strings.Repeat("a", 4000)
	for pattern, path := range map[string]string{
		strings.Repeat("**/a/", 100) + "b":             deep,
		strings.Repeat("**/*a*/", 100) + "**/b":        deep,
		strings.Repeat("a*", 100) + "b":                long,
		strings.Repeat("*[a-z]?", 100) + "b":           long,
		strings.Repeat("**/", 300) + "*b*":             deep,
		strings.Repeat("**/*a*a*a*b*/", 30) + "**/a/b": strings.Repeat(strings.Repeat("a", 100)+"/", 100) + "a",
	} {
		if pathGlob(0, pattern).matches(path, "") {
			t.Errorf("%.20s… matches", pattern)
		}
	}
}

// asRegexp translates a pattern into a regular expression.
func asRegexp(pattern string) (*regexp.Regexp, error) {
	var b strings.Builder
	b.WriteString(`(?s)\A`)
	parts := strings.Split(strings.TrimPrefix(pattern, "/"), "/")
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "**" && last:
			b.WriteString(`[^/]+(?:/[^/]+)*`)
			continue
		case part == "**":
			b.WriteString(`(?:[^/]+/)*`)
			continue
		}
		for rest := part; rest != ""; {
			c, n := character(rest)
			switch c {
			case '*':
				b.WriteString(`[^/]*`)
			case '?':
				b.WriteString(`[^/]`)
			case '[':
				var s set
				var err error
				if s, n, err = parseSet(rest); err != nil {
					return nil, err
				}
				b.WriteString("[")
				if s.not {
					b.WriteString("^/")
				}
				for first, last := range s.ranges {
					if first < '/' && '/' < last { // no set may match the slash
						b.WriteString(span(first, '/'-1))
						first = '/' + 1
					}
					b.WriteString(span(first, last))
				}
				b.WriteString("]")
			default:
				b.WriteString(regexp.QuoteMeta(string(c)))
			}
			rest = rest[n:]
		}
		if !last {
			b.WriteString("/")
		}
	}
	b.WriteString(`\z`)
	return regexp.Compile(b.String())
}

func span(first, last rune) string { return fmt.Sprintf(`\x{%x}-\x{%x}`, first, last) }

func FuzzGlob(f *testing.F) {
	f.Add("batch.slice/**", "batch.slice/a/b")
	f.Add("**/a*[!b-d]?/**/x", "a/ab/aXc/y/x")
	f.Add("a/**/[]-]", "a/]")
	f.Add("[", "[")
	f.Add("[!", "!")
	f.Add("*é?", "aéb")
	f.Add("/**/", "a\xff/b")
	f.Fuzz(func(t *testing.T, pattern, path string) {
		g := pathGlob(0, pattern)
		got := g.matches(path, path)
		unitGlob(0, pattern).matches(path, path)
		_ = checkUnit(pattern)
		if checkPath(pattern) != nil || !utf8.ValidString(pattern) || !utf8.ValidString(path) ||
			path == "" || strings.Contains("/"+path+"/", "//") {
			return
		}
		re, err := asRegexp(pattern)
		if err != nil {
			return // too large for regexp
		}
		if want := re.MatchString(path); got != want {
			t.Errorf("%q and %q: match %v, want %v as %v", pattern, path, got, want, re)
		}
	})
}
