package vm

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
)

// A bzImage decompresses its kernel when it starts, which takes seconds in the
// emulator. If the kernel has an entry for PVH, the emulator can also start the
// decompressed kernel, an ELF file.

// compressions are the formats of compressed kernels: the first bytes, and the
// program that decompresses them.
var compressions = []struct{ magic, program string }{
	{"\xfd7zXZ\x00", "xz"},
	{"\x28\xb5\x2f\xfd", "zstd"},
	{"\x02\x21\x4c\x18", "lz4"},
	{"\x1f\x8b", "gzip"},
}

// decompress writes the kernel of a bzImage to a file. It returns false if this
// machine cannot decompress the kernel, or if the emulator cannot start it.
func decompress(image, to string) (bool, error) {
	text, err := os.ReadFile(image)
	if err != nil {
		return false, err
	}
	payload := payloadOf(text)
	for _, c := range compressions {
		if !bytes.HasPrefix(payload, []byte(c.magic)) {
			continue
		}
		var kernel bytes.Buffer
		cmd := exec.Command(c.program, "-dc")
		cmd.Stdin, cmd.Stdout = bytes.NewReader(payload), &kernel
		_ = cmd.Run() // most programs complain about the size of the kernel, which follows
		if !hasPVHEntry(bytes.NewReader(kernel.Bytes())) {
			return false, nil
		}
		return true, os.WriteFile(to, kernel.Bytes(), 0o600)
	}
	return false, nil
}

// payloadOf returns the compressed kernel in a bzImage
// (Documentation/arch/x86/boot.rst). For another file it returns nil.
func payloadOf(image []byte) []byte {
	const setupSectors, magic, offset, length = 0x1f1, 0x202, 0x248, 0x24c
	if len(image) < length+4 || string(image[magic:magic+4]) != "HdrS" {
		return nil
	}
	begin := (int(image[setupSectors])+1)*512 + int(binary.LittleEndian.Uint32(image[offset:]))
	end := begin + int(binary.LittleEndian.Uint32(image[length:]))
	if begin >= end || end > len(image) {
		return nil
	}
	return image[begin:end]
}

// hasPVHEntry reports whether a file is a complete ELF file with the note for
// the PVH entry (XEN_ELFNOTE_PHYS32_ENTRY). The headers of the sections are its
// last part.
func hasPVHEntry(r io.ReaderAt) bool {
	file, err := elf.NewFile(r)
	if err != nil {
		return false
	}
	for _, p := range file.Progs {
		if p.Type != elf.PT_NOTE {
			continue
		}
		notes, err := io.ReadAll(p.Open())
		if err != nil {
			return false
		}
		// A note has the lengths of its name and its content, its type, the
		// name, and the content. Name and content are padded to four bytes.
		for len(notes) >= 12 {
			name, content := int(file.ByteOrder.Uint32(notes)), int(file.ByteOrder.Uint32(notes[4:]))
			kind := file.ByteOrder.Uint32(notes[8:])
			whole := 12 + (name+3)&^3 + (content+3)&^3
			if whole > len(notes) {
				return false
			}
			if kind == 18 && bytes.HasPrefix(notes[12:], []byte("Xen\x00")) {
				return true
			}
			notes = notes[whole:]
		}
	}
	return false
}
