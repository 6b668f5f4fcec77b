package config

import "strings"

const (
	// WantNamespace, WantKey and WantValue describe what IsNamespace, IsKey and IsValue accept.
	WantNamespace = "the name of a namespace: 1 to 63 lower-case letters, digits and -, with a letter or digit at both ends"
	WantKey       = "the key of a label: 1 to 63 letters, digits, -, _ and ., with a letter or digit at both ends, after an optional DNS name and /"
	WantValue     = "the value of a label: at most 63 letters, digits, -, _ and ., with a letter or digit at both ends"
)

// maxDNSName is the greatest length of a DNS name, and maxWord that of one part
// of it, of the name of a label and of its value.
const (
	maxDNSName = 253
	maxWord    = 63
)

const lower, upper, digits = "abcdefghijklmnopqrstuvwxyz", "ABCDEFGHIJKLMNOPQRSTUVWXYZ", "0123456789"

// IsNamespace reports whether a namespace can have the name s. These are the
// rules of the API server (k8s.io/apimachinery/pkg/api/validate/content).
func IsNamespace(s string) bool { return isWord(s, lower+digits, "-") }

// IsLabelKey reports whether a label can have the key s.
func IsLabelKey(s string) bool {
	prefix, name, prefixed := strings.Cut(s, "/")
	if !prefixed {
		return isLabelWord(s)
	}
	return isDNSName(prefix) && isLabelWord(name)
}

// isLabelValue reports whether a label can have the value s.
func isLabelValue(s string) bool { return s == "" || isLabelWord(s) }

func isLabelWord(s string) bool { return isWord(s, lower+upper+digits, "-_.") }

func isDNSName(s string) bool {
	for part := range strings.SplitSeq(s, ".") {
		if part == "" || strings.Trim(part, lower+digits+"-") != "" || strings.Trim(part, "-") != part {
			return false
		}
	}
	return len(s) <= maxDNSName
}

// isWord reports whether s has 1 to maxWord characters: ends at both ends, and
// ends or inner between them.
func isWord(s, ends, inner string) bool {
	if s == "" || len(s) > maxWord {
		return false
	}
	return strings.Trim(s, ends+inner) == "" && strings.Contains(ends, s[:1]) && strings.Contains(ends, s[len(s)-1:])
}
