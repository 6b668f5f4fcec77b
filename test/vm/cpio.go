package vm

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// A cpioWriter writes an archive in the "new ASCII" format, which the kernel
// can unpack (Documentation/driver-api/early-userspace/buffer-format.rst).
type cpioWriter struct {
	w     io.Writer
	inode int
}

// File types in st_mode.
const (
	typeDir     = 0o040000
	typeRegular = 0o100000
)

// add appends a file or a directory; name has no leading slash.
func (c *cpioWriter) add(name string, f file) error {
	mode := typeRegular | int64(f.mode.Perm())
	if f.mode&fs.ModeDir != 0 {
		mode = typeDir | int64(f.mode.Perm())
	}
	if f.host == "" {
		return c.entry(name, mode, int64(len(f.content)), bytes.NewReader(f.content))
	}
	content, err := os.Open(f.host)
	if err != nil {
		return err
	}
	defer content.Close()
	info, err := content.Stat()
	if err != nil {
		return err
	}
	return c.entry(name, mode, info.Size(), content)
}

// end appends the trailer. Without it, the kernel reports a broken archive.
func (c *cpioWriter) end() error { return c.entry("TRAILER!!!", 0, 0, bytes.NewReader(nil)) }

func (c *cpioWriter) entry(name string, mode, size int64, content io.Reader) error {
	c.inode++
	header := fmt.Sprintf("070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.inode, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, len(name)+1, 0, name)
	if err := c.padTo(int64(len(header)), bytes.NewReader([]byte(header))); err != nil {
		return err
	}
	return c.padTo(size, content)
}

// padTo copies exactly size bytes, and pads them with zeros to a multiple of
// four.
func (c *cpioWriter) padTo(size int64, content io.Reader) error {
	if _, err := io.CopyN(c.w, content, size); err != nil {
		return err
	}
	_, err := c.w.Write(make([]byte, (4-size%4)%4))
	return err
}
