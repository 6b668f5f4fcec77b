package cluster

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"time"

	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/pi"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/model/unit"
)

// The lines that the published program prints. It prints its digits without a
// proof. An image that proves them prints one more line.
var (
	saidTime  = regexp.MustCompile(`computed the first (\d+) digets of pi in (\d+) ms!`)
	saidFirst = regexp.MustCompile(`(?m)^the first digets are: (\S+)`)
	saidProof = regexp.MustCompile(`(?m)^(\d+) threads on CPUs ([\d,-]+), (\d+) of (\d+) digits right`)
)

// roomPatience is the longest time for which the job may find no room.
const roomPatience = 30 * time.Second

// runPi waits until the job has ended, and reads its log.
func (b *bench) runPi(ctx context.Context, m pinning.Mode, selector string, r *pinning.Run) error {
	why, err := b.end(ctx, selector)
	if err != nil {
		return err
	}
	if why != "" {
		r.Void = append(r.Void, why)
		return nil
	}
	text, err := b.space.Do(ctx, "", "logs", jobName)
	if err != nil {
		return err
	}
	result, cpus, err := parsePi(string(text))
	if err != nil {
		return err
	}
	r.PiResult, r.Seconds, r.CPUs = &result, result.Seconds, cpus
	if result.Right < result.Digits {
		r.Void = append(r.Void, fmt.Sprintf("%d of %d digits are right", result.Right, result.Digits))
	}
	if givesCPUs(m) && m != pinning.StaticBurst && !cpus.Empty() && cpus.Len() != b.limit {
		r.Void = append(r.Void, fmt.Sprintf("the job ran on CPUs %v, not on %d of its own", cpus, b.limit))
	}
	return nil
}

// end waits until the pod of the job has succeeded. If the scheduler finds no
// node for it, end returns the reason (why).
func (b *bench) end(ctx context.Context, selector string) (why string, err error) {
	for placed := false; ; {
		// The watch does not report a pod that only waits for a node.
		waiting, stop := context.WithTimeout(ctx, roomPatience)
		var last map[string]kubectl.Pod
		err := b.space.WatchPods(waiting, selector, func(pods map[string]kubectl.Pod) (bool, error) {
			last = pods
			p := pods[jobName]
			placed = placed || p.Started != ""
			if p.Phase == "Failed" {
				return false, fmt.Errorf("pod %s failed%w", p.Name, b.space.Complaint(ctx, p.Name))
			}
			return p.Phase == "Succeeded", nil
		})
		stop()
		if !errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			return "", err
		}
		state, unplaced := kubectl.Waiting(last, 1)
		if unplaced && !placed {
			return state, nil
		}
	}
}

// parsePi reads the log of the job. A program that does not prove its digits
// leaves Digits and Right at 0, and its threads and CPUs are unknown.
func parsePi(text string) (r pi.Report, cpus unit.CPUSet, err error) {
	took, first := saidTime.FindStringSubmatch(text), saidFirst.FindStringSubmatch(text)
	if took == nil || first == nil {
		return r, cpus, fmt.Errorf("the job does not say how long it took: %q", text)
	}
	ms, err := strconv.ParseInt(took[2], 10, 64)
	if err != nil {
		return r, cpus, fmt.Errorf("the job took %s ms: %w", took[2], err)
	}
	r.Seconds, r.First = float64(ms)/1000, first[1]
	if proof := saidProof.FindStringSubmatch(text); proof != nil {
		var faults [4]error
		r.Threads, faults[0] = strconv.Atoi(proof[1])
		cpus, faults[1] = unit.ParseCPUSet(proof[2])
		r.Right, faults[2] = strconv.Atoi(proof[3])
		r.Digits, faults[3] = strconv.Atoi(proof[4])
		err = errors.Join(faults[:]...)
	}
	return r, cpus, err
}
