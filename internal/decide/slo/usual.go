package slo

import "time"

const (
	// Waits are usual after enoughUsual windows that kept the objective. They are the mean
	// of the last usualWindows of them, up to a few minutes.
	enoughUsual, usualWindows = 4, 32
)

// Usual are the waits of a workload in a second, by what ran meanwhile, in windows that
// kept its objective: so they are not why it misses the objective now.
type Usual struct {
	Windows    int64         `json:"windows,omitempty"`
	ByBE       time.Duration `json:"by_be_ns,omitempty"`
	BySelf     time.Duration `json:"by_self_ns,omitempty"`
	ByServices time.Duration `json:"by_services_ns,omitempty"`
	BySystem   time.Duration `json:"by_system_ns,omitempty"`
}

// with adds a window. r is the growth of the counters in it.
func (u Usual) with(r Reading, length time.Duration) Usual {
	if r.Waited <= 0 || length <= 0 {
		return u // the waits are not counted
	}
	u.Windows = min(u.Windows+1, usualWindows)
	add := func(mean *time.Duration, grown time.Duration) {
		inSecond := time.Duration(float64(grown) / length.Seconds())
		*mean += (inSecond - *mean) / time.Duration(u.Windows)
	}
	add(&u.ByBE, r.ByBE)
	add(&u.BySelf, r.BySelf)
	add(&u.ByServices, r.ByServices)
	add(&u.BySystem, r.BySystem)
	return u
}

// newCause returns the cause of a window with a miss if that is clearly new: the workload
// waits for one kind of work much longer than usual, and for BE about as usual. It returns
// "" if that is not so, or if the usual waits are not known. r is the growth of the
// counters in the window.
//
// Many short waits for BE may add up to more than a few long ones for other work. But it
// is the long ones that miss an objective. The counters do not tell them apart, and what
// is usual does.
func (u Usual) newCause(r Reading, length time.Duration) Cause {
	if u.Windows < enoughUsual {
		return ""
	}
	more := func(grown, usual time.Duration) time.Duration {
		return max(grown-time.Duration(float64(usual)*length.Seconds()), 0)
	}
	forBE := more(r.ByBE, u.ByBE)
	usual := time.Duration(float64(u.ByBE+u.BySelf+u.ByServices+u.BySystem) * length.Seconds())
	most, cause := time.Duration(0), Cause("")
	for _, kind := range []struct {
		cause Cause
		more  time.Duration
	}{{OwnThreads, more(r.BySelf, u.BySelf)}, {OtherService, more(r.ByServices, u.ByServices)}, {System, more(r.BySystem, u.BySystem)}} {
		if kind.more > most {
			most, cause = kind.more, kind.cause
		}
	}
	if most < 2*forBE || 2*most < usual {
		return ""
	}
	return cause
}
