package labflag

import (
	"fmt"
	"slices"
	"strings"
)

// ParseList reads comma-separated values, which must be different. An empty text
// does not change the list. flag is the name of the flag, for errors.
func ParseList[T comparable](text, flag string, to *[]T, parse func(string) (T, error)) error {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		v, err := parse(part)
		if err != nil {
			return fmt.Errorf("%s: %w", flag, err)
		}
		if slices.Contains(*to, v) {
			return fmt.Errorf("%s: %s is listed twice", flag, part)
		}
		*to = append(*to, v)
	}
	return nil
}
