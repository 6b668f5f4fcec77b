package record

import (
	"errors"
	"io"
)

// Ticks passes all ticks of a record to a function (each), beginning with the
// oldest. If a crash has cut the end of the record off, it reads the remaining
// part. It skips ticks of another version of the record. If no other ticks are
// there, it returns an error. A Tick is valid until the function returns.
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
