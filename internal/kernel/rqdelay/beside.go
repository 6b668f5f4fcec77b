package rqdelay

import (
	"fmt"
	"maps"
	"math"
	"time"
	"unsafe"

	"tenon.sh/tenon/internal/model/unit"
)

// WatchSiblings replaces the set of watched CPUs. The map gives the sibling of
// each. The program measures how long LS runs on a watched CPU while BE runs on
// its sibling, and sends events (see Alarm.Beside). This makes each context
// switch from LS or BE slower, because it reads the state of the sibling, too.
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

// siblingLimit converts Alarm.Beside for the program. For 0, which means no
// limit, it returns a time that is never reached.
func siblingLimit(d time.Duration) uint64 {
	if d == 0 {
		return math.MaxUint64
	}
	return uint64(d)
}
