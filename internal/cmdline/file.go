package cmdline

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
)

// Stdout is the name of a file that means the standard output.
const Stdout = "-"

// CheckFile returns why the file of a flag cannot be written by WriteFile, as far as that
// is known before the work: its directory is not there, it is a directory itself, it may
// not be written, or it is a file that other flags say to read. inputs has the values of
// these, by flag.
func CheckFile(flag, name string, inputs map[string]string) error {
	if name == "" {
		return Usagef(`--%s "": want a file`, flag)
	}
	if name == Stdout {
		return nil
	}
	is, err := os.Stat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		dir := filepath.Dir(name)
		if of, err := os.Stat(dir); err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		} else if !of.IsDir() {
			return fmt.Errorf("--%s: %s is not a directory", flag, dir)
		}
		return nil
	case err != nil:
		return fmt.Errorf("--%s: %w", flag, err)
	case is.IsDir():
		return Usagef("--%s %s: it is a directory: want a file", flag, name)
	}
	for input, value := range inputs {
		if read, err := os.Stat(value); err == nil && os.SameFile(is, read) {
			return Usagef("--%s %s: this is the file of --%s, which it would overwrite", flag, name, input)
		}
	}
	if is.Mode().IsRegular() { // to open a pipe waits for a reader
		file, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return fmt.Errorf("--%s: %w", flag, err)
		}
		return file.Close()
	}
	return nil
}

// WriteFile writes a page into a file, or to the standard output if the name is Stdout.
func WriteFile(cmd *cobra.Command, name string, page []byte) error {
	if name == Stdout {
		_, err := cmd.OutOrStdout().Write(page)
		return err
	}
	return os.WriteFile(name, page, 0o644)
}
