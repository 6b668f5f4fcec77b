package record

import (
	"errors"
	"io"
)

// Ticks hands every tick of a record to each, the oldest first. A record that
// was torn by a crash is read as far as it goes, and turns of another version
// of the record are left out; it is an error if there are no others. What each
// is handed is good until it returns.
func Ticks(r io.Reader, each func(Tick)) error {
	from, err := newReader(r)
	if err != nil {
		return err
	}
	for {
		e, err := from.next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		each(e.Tick)
	}
}
