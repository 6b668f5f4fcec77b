package labflag

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
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

// CompleteList sets the values that a shell offers for a flag with a list. After
// each comma, the shell offers the values that are not yet in the list.
func CompleteList(cmd *cobra.Command, flag string, values ...string) {
	// An error means that the flag does not exist. A test completes each flag.
	_ = cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, text string) ([]string, cobra.ShellCompDirective) {
		begun := text[:strings.LastIndexByte(text, ',')+1]
		has := strings.Split(begun, ",")
		var offers []string
		for _, v := range values {
			if !slices.Contains(has, v) {
				offers = append(offers, begun+v)
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}
