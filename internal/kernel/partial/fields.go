package partial

import (
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Fields says which fields of a kernel file could not be read, and why, by their
// names in the file. A reader fails only if it could read nothing of use; its
// caller must ask Fields about each field that it uses.
type Fields map[string]error

// Lose records why a field could not be read.
func (f *Fields) Lose(name string, err error) {
	if *f == nil {
		*f = Fields{}
	}
	(*f)[name] = err
}

// Lack reports whether any of the named fields could not be read.
func (f Fields) Lack(names ...string) bool {
	return len(f) > 0 && slices.ContainsFunc(names, func(name string) bool { return f[name] != nil })
}

// Err returns the causes as one error that begins with the name of the file, or
// nil if all fields could be read.
func (f Fields) Err(file string) error {
	if len(f) == 0 {
		return nil
	}
	return fmt.Errorf("parse %s: %w", file, f.Cause())
}

// Cause returns the causes as one error, or nil.
func (f Fields) Cause() error {
	errs := make([]error, 0, len(f))
	for _, name := range slices.Sorted(maps.Keys(f)) {
		errs = append(errs, f[name])
	}
	return errors.Join(errs...)
}
