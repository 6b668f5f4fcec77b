package resultcmd

import (
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/lab/archive"
)

// NewPack returns the command tenon lab pack.
func NewPack(f Frame) *cobra.Command {
	return &cobra.Command{
		Use:   "pack DIR",
		Short: "Put the raw data of an experiment into one file, raw.tar.zst",
		Long: `Put the raw data of an experiment into one file, raw.tar.zst, in its directory.
README.md, result.json and table.txt stay beside it, and so does every
subdirectory that has a raw.tar.zst of its own. The archive is read back and
compared before a packed file is removed. report.html is removed, too: tenon lab
report makes it again, from the archive. The same files give the same archive.
To unpack: tar --zstd -xf raw.tar.zst.`,
		Example:           "  tenon lab pack tenon-lab-20260102-150405",
		Args:              cmdline.OneArg("directory"),
		ValidArgsFunction: cmdline.DirArg,
		RunE: func(cmd *cobra.Command, args []string) error {
			p, err := archive.Pack(args[0])
			if err != nil {
				return err
			}
			done := struct {
				File string `json:"file"`
				archive.Packed
			}{filepath.Join(args[0], archive.Name), p}
			return f.Print(cmd, done, fmt.Sprintf("%s: %d files, %d bytes packed into %d\n", done.File, p.Files, p.RawBytes, p.Bytes))
		},
	}
}
