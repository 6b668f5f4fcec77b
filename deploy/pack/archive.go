package pack

import (
	"archive/tar"
	"archive/zip"
	"cmp"
	"compress/gzip"
	"io"
	"slices"
	"time"
)

// Tar writes files in the order of their names. The same files give the same bytes.
func Tar(w io.Writer, files []File, created time.Time) error {
	t := tar.NewWriter(w)
	for _, f := range inOrder(files) {
		if err := put(t, f.Name, f.Mode, created, f.Data); err != nil {
			return err
		}
	}
	return t.Close()
}

// TarGz is Tar, compressed.
func TarGz(w io.Writer, files []File, created time.Time) error {
	return compress(w, func(w io.Writer) error { return Tar(w, files, created) })
}

// compress writes what fill writes. The same data give the same bytes.
func compress(w io.Writer, fill func(io.Writer) error) error {
	z, err := gzip.NewWriterLevel(w, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := fill(z); err != nil {
		return err
	}
	return z.Close()
}

// Zip is Tar for Windows.
func Zip(w io.Writer, files []File, created time.Time) error {
	z := zip.NewWriter(w)
	for _, f := range inOrder(files) {
		to, err := z.CreateHeader(&zip.FileHeader{Name: f.Name, Method: zip.Deflate, Modified: created})
		if err != nil {
			return err
		}
		if _, err := to.Write(f.Data); err != nil {
			return err
		}
	}
	return z.Close()
}

func inOrder(files []File) []File {
	return slices.SortedFunc(slices.Values(files), func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
}

func put(t *tar.Writer, name string, mode int64, at time.Time, data []byte) error {
	if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(data)), ModTime: at, Format: tar.FormatUSTAR}); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}
