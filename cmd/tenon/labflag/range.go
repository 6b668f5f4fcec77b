package labflag

import (
	"errors"
	"fmt"

	"github.com/spf13/pflag"
)

// RefuseZero returns an error for each flag of ranges that the user set to zero or
// to an empty text. ranges maps flags to their accepted values. In a
// configuration, zero means the default, which a user gets without the flag.
func RefuseZero(flags *pflag.FlagSet, ranges map[string]string) error {
	var faults []error
	flags.Visit(func(f *pflag.Flag) {
		accepts, known := ranges[f.Name]
		if !known {
			return
		}
		switch value := f.Value.String(); value {
		case "":
			faults = append(faults, fmt.Errorf(`--%s "": want %s`, f.Name, accepts))
		case "0", "0s", "0%":
			faults = append(faults, fmt.Errorf("--%s %s: want %s", f.Name, value, accepts))
		}
	})
	return errors.Join(faults...)
}
