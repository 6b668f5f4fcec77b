package testbed

import (
	"fmt"

	"tenon.sh/tenon/internal/model/unit"
)

// Mebibytes prints an amount of memory.
func Mebibytes(b unit.Bytes) string { return fmt.Sprintf("%d MiB", b>>20) }
