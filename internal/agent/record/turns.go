package record

import (
	"errors"
	"io"
)

// Ticks calls each with every tick of a record, the oldest first. If a crash
// has cut the record off, it reads it up to there. It skips ticks of another
// version of the record; if there are no others, it returns an error. The Tick
// that each gets is valid until each returns.
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
