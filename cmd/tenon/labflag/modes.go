package labflag

import (
	"errors"
	"strings"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/harness"
)

// ModesError completes an error of harness.ParseModes. It names the modes that a wrong
// name resembles in place of all.
func ModesError(err error) error {
	if unknown, is := errors.AsType[harness.UnknownMode](err); is {
		known := strings.Split(harness.JoinModes(unknown.Known), ",")
		if meant := cmdline.Nearest(string(unknown.Mode), known); meant != "" {
			return cmdline.Usagef("--modes: unknown mode %q: %s", unknown.Mode, meant)
		}
	}
	return cmdline.Usagef("--modes: %w", err)
}
