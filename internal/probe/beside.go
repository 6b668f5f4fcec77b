package probe

import (
	"fmt"
	"maps"
	"math"
	"time"
	"unsafe"

	"tenon.sh/tenon/internal/unit"
)

// WatchSiblings counts for each of the CPUs how long LS ran there while BE ran
// on the sibling that is named, or the other way round; a CPU that is not named
// is not watched. It makes events as Alarm.Beside says, and adds a look at the
// sibling to each context switch from LS or BE.
func (p *Probe) WatchSiblings(of map[unit.CPU]unit.CPU) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return fmt.Errorf("watch siblings: %w", ErrClosed)
	}
	if maps.Equal(of, p.siblings) {
		return nil
	}
	cpus := len(p.view.cpu)
	for cpu, sibling := range of {
		if int(cpu) >= cpus || int(sibling) >= cpus || cpu == sibling {
			return fmt.Errorf("watch CPU %d beside CPU %d: want two of %d", cpu, sibling, cpus)
		}
	}
	const field = int64(unsafe.Offsetof(delayTenonCpu{}.Sibling))
	for cpu := range cpus {
		var number uint32
		if sibling, watched := of[unit.CPU(cpu)]; watched {
			number = uint32(sibling) + 1
		}
		at := int64(cpu)*int64(unsafe.Sizeof(delayTenonCpu{})) + field
		if _, err := p.view.cpus.WriteAt(unsafe.Slice((*byte)(unsafe.Pointer(&number)), unsafe.Sizeof(number)), at); err != nil {
			return fmt.Errorf("watch CPU %d beside CPU %d: %w", cpu, number, err)
		}
	}
	p.siblings = maps.Clone(of)
	return nil
}

// besideLimit is what the program is told: no limit is one that is never reached.
func besideLimit(d time.Duration) uint64 {
	if d == 0 {
		return math.MaxUint64
	}
	return uint64(d)
}
