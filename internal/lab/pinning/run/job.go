package run

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"tenon.sh/tenon/internal/lab/kubectl"
	"tenon.sh/tenon/internal/lab/pi"
	"tenon.sh/tenon/internal/lab/pinning"
	"tenon.sh/tenon/internal/model/unit"
)

// The lines that the published program prints. That program does not check its
// digits. A program that checks them prints one more line.
var (
	saidTime  = regexp.MustCompile(`computed the first (\d+) digets of pi in (\d+) ms!`)
	saidFirst = regexp.MustCompile(`(?m)^the first digets are: (\S+)`)
	saidProof = regexp.MustCompile(`(?m)^(\d+) threads on CPUs ([\d,-]+), (\d+) of (\d+) digits right`)
)

const (
	// roomPatience is the longest time for which the job may find no room.
	roomPatience = 30 * time.Second
	// startPatience is the longest time until the container of the job runs. It
	// includes the time to download the image.
	startPatience = 5 * time.Minute
)

// runPi waits until the job has ended, and reads its log.
func (b *pods) runPi(ctx context.Context, m pinning.Mode, selector string, r *pinning.Run) error {
	ctx, stop := context.WithTimeout(ctx, b.MaxTime)
	defer stop()
	held := make(chan holding, 1)
	why, err := b.awaitEnd(ctx, selector, func() {
		if b.cpus.why == "" {
			go func() { held <- b.heldByJob(ctx, m) }()
		}
	})
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
	select {
	case h := <-held:
		if r.CPUs = h.all; r.CPUs.Empty() {
			r.CPUs = cpus
		}
		if h.why != "" {
			r.Void = append(r.Void, h.why)
		}
	default: // it ended before tenond reported
		switch {
		case !givesCPUs(m):
		case cpus.Empty():
			r.Void = append(r.Void, "the job ended before tenond reported its CPUs, and its image does not print them")
		case m != pinning.StaticBurst && cpus.Len() != b.limit:
			r.Void = append(r.Void, fmt.Sprintf("the job ran on CPUs %v, not on %d of its own", cpus, b.limit))
		}
	}
	return nil
}

// heldByJob returns what tenond reports of the job.
func (b *pods) heldByJob(ctx context.Context, m pinning.Mode) (h holding) {
	uid, err := b.space.Do(ctx, "", "get", "pod", jobName, "-o", "jsonpath={.metadata.uid}")
	if err == nil {
		h, err = b.awaitHeld(ctx, m, b.limit, []string{strings.TrimSpace(string(uid))})
	}
	if err != nil {
		h.why = err.Error()
	}
	return h
}

// awaitEnd waits until the pod of the job has succeeded. If the scheduler finds no
// node for the pod, or if its container does not start within five minutes,
// awaitEnd returns the reason (why). It calls begun once, when the container runs.
func (b *pods) awaitEnd(ctx context.Context, selector string, begun func()) (why string, err error) {
	created := time.Now()
	for placed := false; ; {
		// A watch reports only changes. A pod that waits for a node does not change.
		waiting, stop := context.WithTimeout(ctx, roomPatience)
		var last map[string]kubectl.Pod
		err := b.space.WatchPods(waiting, selector, func(pods map[string]kubectl.Pod) (bool, error) {
			last = pods
			p := pods[jobName]
			if p.Started != "" && !placed {
				placed = true
				begun()
			}
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
		switch {
		case placed:
			b.Status.Now("the job has run for %v", time.Since(created).Round(time.Second))
		case unplaced || time.Since(created) > startPatience:
			return "the job does not start: " + state, nil
		default:
			b.Status.Now("waiting for the job: %s", state)
		}
	}
}

// parsePi reads the log of the job. If the program does not check its digits,
// Digits and Right are 0, and the threads and CPUs are not known.
func parsePi(text string) (r pi.Report, cpus unit.CPUSet, err error) {
	took, first := saidTime.FindStringSubmatch(text), saidFirst.FindStringSubmatch(text)
	if took == nil || first == nil {
		return r, cpus, fmt.Errorf("the job does not say how long it took: %.300q", text)
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
