package harness

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"tenon.sh/tenon/internal/lab/testbed"
	"tenon.sh/tenon/internal/model/node"
)

// Disturbances starts to watch the tested CPUs while the processes in a cgroup
// work. The returned function gives the disturbances since then. Each of them
// makes a run void. A share of foreign work counts only if foreignPercent is not 0.
func Disturbances(s *testbed.Site, work node.CgroupPath, stealPercent, foreignPercent float64) (func() ([]string, error), error) {
	sampler := Sampler{Tree: s.Tree, FS: s.FS, Tested: s.Place.Tested, Service: work, Recording: Recording{NoPSI: true}}
	before, err := sampler.Reading()
	own := ownTime()
	return func() (void []string, err error) {
		after, err := sampler.Reading()
		if err != nil {
			return nil, err
		}
		cpus := s.Place.Tested.Len()
		used := Between(before, after, cpus)
		if share := 100 * used.StealRatio; share > stealPercent {
			void = append(void, fmt.Sprintf("the hypervisor kept %.1f %% of the tested CPUs' time (steal), more than %g %%", share, stealPercent))
		}
		foreign := used.Busy - used.LS - (ownTime()-own).Seconds()/used.Wall
		if share := 100 * foreign / float64(cpus); foreignPercent > 0 && share > foreignPercent {
			void = append(void, fmt.Sprintf("other work used %.1f %% of the tested CPUs, more than %g %%", share, foreignPercent))
		}
		return void, nil
	}, err
}

// ownTime is the CPU time of this process.
func ownTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // cannot fail: the argument is valid
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
