package record

import (
	"errors"
	"io"
)

// Ticks calls the function each for all ticks of a record, oldest first. The
// tick is valid until the function returns. If a crash has cut off the end of
// the record, Ticks reads the part before it. It skips ticks of another version
// of the record, and returns an error if there are no other ticks.
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
