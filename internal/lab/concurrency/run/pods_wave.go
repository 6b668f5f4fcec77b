package run

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"tenon.sh/tenon/internal/lab/jobs"
	"tenon.sh/tenon/internal/lab/kubectl"
)

// leadOf returns the time from the release of a wave of n jobs until it begins.
// In this time, the annotations of all pods are written, and the kubelet brings
// them into the pods.
func leadOf(n int) time.Duration { return 3*time.Second + time.Duration(n)*50*time.Millisecond }

// maxLead bounds the time that the lab waits before each wave. Late jobs make
// the lab wait longer before the next waves.
const maxLead = 20 * time.Second

// measure runs a cell once.
func (b *pods) measure(ctx context.Context, cell Cell, index, block int) (r measured, err error) {
	selector := b.space.Selector(runLabel, strconv.Itoa(index))
	defer func() {
		// The jobs of this run must not run beside those of the next one. The
		// pods of this run have ended, or end within a second.
		err = errors.Join(err, b.space.Clean(ctx, selector, "background"))
	}()
	if err := b.space.Apply(ctx, b.manifests(cell, index, block)); err != nil {
		return r, err
	}
	if !b.AsPublished {
		why, err := b.space.Gather(ctx, "jobs", selector, cell.Jobs, b.Status.Now)
		if err != nil {
			return r, err
		}
		if why != "" {
			r.Void = []string{why}
			return r, nil
		}
		if err := b.release(ctx, selector, cell.Jobs); err != nil {
			return r, err
		}
	}
	if err := b.finish(ctx, selector, cell.Jobs); err != nil {
		return r, err
	}
	if r.Rows, err = b.collect(ctx, selector); err != nil {
		return r, err
	}
	late := false
	for _, j := range r.Rows {
		if j.Extra.Void != "" {
			r.Void = append(r.Void, fmt.Sprintf("job %d: %s", j.Index, j.Extra.Void))
		}
		late = late || j.Extra.LateSeconds.Or(0) > 0.25
	}
	jobs.VoidMixed(r.Rows) // as an import of the logs does
	if late {
		b.lead = min(b.lead+time.Second, maxLead)
	}
	if len(r.Rows) != cell.Jobs {
		r.Void = append(r.Void, fmt.Sprintf("%d pods ran, not %d", len(r.Rows), cell.Jobs))
	}
	return r, nil
}

// release tells all pods when to begin.
func (b *pods) release(ctx context.Context, selector string, n int) error {
	if err := b.compareClocks(ctx, selector); err != nil {
		return err
	}
	begin := time.Now().Add(b.skew + max(b.lead, leadOf(n)))
	due := begin.Unix()
	if begin.Nanosecond() > 0 {
		due++
	}
	_, err := b.space.Do(ctx, "", "annotate", "pods", "-l", selector, "--overwrite", startKey+"="+strconv.FormatInt(due, 10))
	return err
}

// compareClocks asks a pod once for the time of its node. It assumes that the
// clocks of all tested nodes agree. If the lab may not run a command in a pod,
// it uses its own clock.
func (b *pods) compareClocks(ctx context.Context, selector string) error {
	if b.skew != 0 {
		return nil
	}
	pod, err := b.space.Do(ctx, "", "get", "pods", "-l", selector, "-o", "jsonpath={.items[0].metadata.name}")
	if err != nil {
		return err
	}
	asked := time.Now()
	out, err := b.space.Do(ctx, "", "exec", strings.TrimSpace(string(pod)), "--", "date", "+%s")
	b.skew = time.Nanosecond // compared
	if s, parseErr := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64); err == nil && parseErr == nil {
		// A difference of up to two seconds may come from the time that the
		// command takes.
		if d := time.Unix(s, 0).Sub(asked); d.Abs() > 2*time.Second {
			b.skew = d
		}
	}
	return ctx.Err()
}

// finish waits until all jobs have ended.
func (b *pods) finish(ctx context.Context, selector string, n int) error {
	return b.space.Admitted(ctx, "jobs", selector, n, func(pods map[string]kubectl.Pod) (bool, error) {
		ended := 0
		for _, p := range pods {
			if p.Ended() {
				ended++
			}
		}
		return ended >= n, nil
	})
}

// A podObject is the part of an ended pod that the lab reads.
type podObject struct {
	Metadata struct{ Name string }
	Spec     struct{ NodeName string }
	Status   struct {
		Reason, Message   string
		ContainerStatuses []struct {
			Name, ContainerID string
			State             struct {
				Terminated *struct {
					ExitCode              int
					Reason                string
					StartedAt, FinishedAt time.Time
				}
			}
		}
	}
}

// collect makes the rows of the jobs from the logs of their containers.
func (b *pods) collect(ctx context.Context, selector string) ([]jobs.Job, error) {
	var pods struct{ Items []podObject }
	if err := b.space.Get(ctx, &pods, "pods", "-l", selector); err != nil {
		return nil, err
	}
	rows, faults := make([]jobs.Job, len(pods.Items)), make([]error, len(pods.Items))
	var readers sync.WaitGroup
	free := make(chan struct{}, 4)
	for i, p := range pods.Items {
		readers.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			rows[i], faults[i] = b.row(ctx, p)
		})
	}
	readers.Wait()
	slices.SortFunc(rows, func(x, y jobs.Job) int { return x.Index - y.Index })
	return rows, errors.Join(faults...)
}

// row reads the log of a pod, and saves it in the form that the log has on a
// node. It then makes the row of the job as an import does.
func (b *pods) row(ctx context.Context, p podObject) (jobs.Job, error) {
	fault := func(err error) error { return fmt.Errorf("pod %s: %w", p.Metadata.Name, err) }
	if len(p.Status.ContainerStatuses) != 1 {
		return jobs.Job{}, fault(fmt.Errorf("it ended before its container began: %s %s", p.Status.Reason, p.Status.Message))
	}
	c := p.Status.ContainerStatuses[0]
	_, id, _ := strings.Cut(c.ContainerID, "://")
	name := jobs.LinkName(p.Metadata.Name, b.Pods.Namespace, c.Name, id)
	j, ok, err := jobs.FromLink(p.Spec.NodeName, name)
	if err != nil || !ok {
		return j, fault(errors.Join(err, fmt.Errorf("a log with the name %q is not that of a job", name)))
	}
	text, err := b.space.Do(ctx, "", "logs", p.Metadata.Name, "-c", c.Name, "--timestamps")
	if err != nil {
		return j, fault(err)
	}
	file := filepath.Join(b.Out, "logs", p.Spec.NodeName, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return j, fault(err)
	}
	log := nodeLog(string(text))
	if err := os.WriteFile(file, []byte(log), 0o644); err != nil {
		return j, fault(err)
	}
	t := c.State.Terminated
	l, err := jobs.ReadLog(strings.NewReader(log))
	switch {
	case err == nil:
		j = j.With(l)
	case t != nil:
		j.In, j.Out, j.Extra.Void = t.StartedAt, t.FinishedAt, err.Error()
	default:
		return j, fault(err)
	}
	if t != nil && t.Reason != "Completed" && t.Reason != "" && j.Extra.Void != "" {
		j.Extra.Void += " (" + t.Reason + ")"
	}
	return j, nil
}

// nodeLog converts the output of kubectl logs --timestamps to the form that a
// log has on a node. kubectl leaves out the stream and the tag of each line.
func nodeLog(text string) string {
	var log strings.Builder
	for line := range strings.Lines(text) {
		at, rest, _ := strings.Cut(line, " ")
		log.WriteString(at + " stderr F " + rest)
	}
	return log.String()
}
