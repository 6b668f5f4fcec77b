package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"tenon.sh/tenon/api/v1alpha1"
	"tenon.sh/tenon/internal/agent/printable"
	"tenon.sh/tenon/internal/cluster/nodepages"
	"tenon.sh/tenon/internal/cluster/outlookreport"
	"tenon.sh/tenon/internal/cmdline"
	"tenon.sh/tenon/internal/decide/prospect"
	document "tenon.sh/tenon/internal/lab/page"
	"tenon.sh/tenon/internal/model/node"
	"tenon.sh/tenon/internal/model/unit"
	"tenon.sh/tenon/internal/outlook"
	"tenon.sh/tenon/internal/table"
)

// pageSize is the number of objects of one answer of the API server. Of a report, only
// the outlook stays in memory.
const pageSize = 500

// A reportQuestion contains the command line of report.
type reportQuestion struct {
	*access
	now              func() time.Time
	html, node, pool string
	kept             bool
}

func reportCommand(a *access, now func() time.Time) *cobra.Command {
	q := &reportQuestion{access: a, now: now}
	cmd := &cobra.Command{
		Use:   "report",
		Short: "Show how much batch work the nodes could have run in the last days, at which hours and risk",
		Long: `Show how much CPU and memory the nodes could have given to batch work in the last
seven days, by hour of the day; which share of jobs would have failed; how good
forecasts were; and which services were hurt, and by whom.

It adds up the summaries that agents with a history put into their NodeReports once
an hour, and must be allowed to list these; --pool also lists nodes. With the right to
list pods and namespaces, it also says what Jobs requested that could be batch work.
Nodes whose agent is silent or keeps no history do not count, and are named.
docs/how-much.md explains each number.`,
		Example: `  kubectl tenon report
  kubectl tenon report --html report.html
  kubectl tenon report --pool pool=web
  kubectl tenon report --kept              # what past promises said, beside what came`,
		Args: cmdline.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return q.answer(cmd) },
	}
	flags := cmd.Flags()
	flags.StringVar(&q.html, "html", "", "write a page with pictures to this file instead, or to standard output (-)")
	flags.StringVar(&q.node, "node", "", "only this node")
	flags.StringVar(&q.pool, "pool", "", "only the nodes with this label, LABEL=VALUE")
	flags.BoolVar(&q.kept, "kept", false, "show what past promises of room said, beside what came")
	cmdline.Files(flags, "html")
	cmdline.CompleteFrom(cmd, "node", a.reportedNodes)
	return cmd
}

func (q *reportQuestion) check(cmd *cobra.Command) error {
	if q.output != cmdline.Text && q.html != "" {
		return cmdline.Usagef("want one of -o %s and --html", q.output)
	}
	if cmd.Flags().Changed("html") {
		if err := cmdline.CheckFile("html", q.html, nil); err != nil {
			return err
		}
	}
	if key, _, has := strings.Cut(q.pool, "="); cmd.Flags().Changed("pool") && (key == "" || !has) {
		return cmdline.Usagef("--pool %q: want LABEL=VALUE", q.pool)
	}
	return nil
}

// answer prints the page.
func (q *reportQuestion) answer(cmd *cobra.Command) error {
	if err := q.check(cmd); err != nil {
		return err
	}
	c, err := q.client()
	if err != nil {
		return err
	}
	f, err := q.read(cmd.Context(), c)
	if err != nil {
		return err
	}
	f.name(cmd.ErrOrStderr())
	if len(f.outlooks) == 0 {
		return q.nothing(f)
	}
	sum := prospect.Sum(f.outlooks)
	for i := range sum.Hurt {
		h := &sum.Hurt[i]
		h.Service, h.By = printable.Text(h.Service), printable.Text(h.By)
	}
	if q.kept {
		v := outlook.KeptView{Of: q.of(len(f.outlooks)), Fleet: sum, Shortfalls: prospect.Shortfalls(f.outlooks)}
		return q.print(cmd, v.Page(), keptData{len(f.outlooks), sum.CPU.Promised, sum.Memory.Promised, v.Shortfalls, f.uncounted})
	}
	v := outlook.View{Of: upper(q.of(len(f.outlooks))), Fleet: sum, Hints: clusterHints}
	data := reportData{Fleet: sum, uncounted: f.uncounted}
	if requested, unread := jobs(cmd.Context(), c, f.outlooks, q.node == "" && q.pool == ""); unread == "" {
		v.Jobs, data.Jobs = node.Some(requested), &requested
	} else {
		v.JobsUnread = printable.Text(unread)
		data.JobsUnread = v.JobsUnread
	}
	return q.print(cmd, v.Page(), data)
}

// clusterHints say what to do about the gaps of a cluster.
var clusterHints = map[prospect.GapCode]string{
	prospect.GapBatch:   "tenon report --prometheus knows it, and counts the saving.",
	prospect.GapRoomCPU: "The agent computes it with colocation-config: {enable: true}.",
}

// of names the nodes of a page.
func (q *reportQuestion) of(nodes int) string {
	_, value, one := strings.Cut(q.pool, "=")
	switch {
	case q.node != "":
		return "node " + printable.Text(q.node)
	case one:
		return fmt.Sprintf("%s of pool %s", table.Count(nodes, "node"), printable.Text(value))
	}
	return table.Count(nodes, "node") + " of the cluster"
}

// upper makes the first letter of a text a capital one.
func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// print prints a page as text, as HTML, or its values.
func (q *reportQuestion) print(cmd *cobra.Command, p document.Page, values any) error {
	var text bytes.Buffer
	if q.html != "" {
		if err := p.WriteHTML(&text); err != nil {
			return err
		}
		return write(cmd, q.html, text.String())
	}
	if err := p.WriteText(&text); err != nil {
		return err
	}
	return q.output.Print(cmd.OutOrStdout(), values, text.String())
}

// reportData is the answer of report as data.
type reportData struct {
	prospect.Fleet
	Jobs       *prospect.Jobs `json:"jobs,omitempty"`
	JobsUnread string         `json:"jobs_unread,omitempty"` // why there is no Jobs
	uncounted
}

// keptData is the answer of report --kept as data.
type keptData struct {
	Nodes      int                            `json:"nodes"`
	CPU        []prospect.Kept[unit.MilliCPU] `json:"cpu_mcpu"`
	Memory     []prospect.Kept[unit.Bytes]    `json:"memory_bytes"`
	Shortfalls []prospect.Shortfall           `json:"shortfalls"`
	uncounted
}

// A fleet is what the reports of the nodes say.
type fleet struct {
	outlooks []prospect.Outlook
	uncounted
}

// uncounted has the nodes that do not count: their state is not known, or they have no
// outlook.
type uncounted struct {
	Silent  []string `json:"silent_nodes,omitempty"`
	Without []string `json:"nodes_without_outlook,omitempty"`
}

// read reads the reports, page by page.
func (q *reportQuestion) read(ctx context.Context, c client.Client) (f fleet, err error) {
	pool, err := q.nodesOfPool(ctx, c)
	if err != nil {
		return f, err
	}
	add := func(r *v1alpha1.NodeReport) {
		if q.pool != "" && !pool[r.Name] {
			return // a node that was removed, or of another pool
		}
		n := nodepages.Node{Node: &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: r.Name}}, Report: r}
		name := printable.Text(r.Name) // standard error and HTML get it as it is
		switch o, has := outlookreport.Read(name, &r.Status); {
		case n.IsSilent(q.now()):
			f.Silent = append(f.Silent, name)
		case !has:
			f.Without = append(f.Without, name)
		default:
			f.outlooks = append(f.outlooks, o)
		}
	}
	if q.node != "" {
		var r v1alpha1.NodeReport
		switch err := c.Get(ctx, client.ObjectKey{Name: q.node}, &r); {
		case apierrors.IsNotFound(err):
			return f, fmt.Errorf("there is no report of a node %q", q.node)
		case err != nil:
			return f, reportsErr(err)
		}
		add(&r)
		return f, nil
	}
	return f, eachReport(ctx, c, add)
}

// eachReport calls a function for each report. The report is valid until it returns.
func eachReport(ctx context.Context, c client.Client, each func(*v1alpha1.NodeReport)) error {
	for next := ""; ; {
		var reports v1alpha1.NodeReportList
		if err := c.List(ctx, &reports, client.Limit(pageSize), client.Continue(next)); err != nil {
			if name := unreadable(ctx, c, next); name != "" {
				return fmt.Errorf("read the report of node %q, which has a value of a wrong type: %w", name, err)
			}
			return reportsErr(err)
		}
		for i := range reports.Items {
			each(&reports.Items[i])
		}
		if next = reports.Continue; next == "" {
			return nil
		}
	}
}

// unreadable names the first report of a page that is not one of this version, or returns
// "" if that is not why the page could not be read. One such report fails the whole page.
func unreadable(ctx context.Context, c client.Client, page string) string {
	var reports unstructured.UnstructuredList
	reports.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeReportList"))
	if err := c.List(ctx, &reports, client.Limit(pageSize), client.Continue(page)); err != nil {
		return ""
	}
	for _, of := range reports.Items {
		if text, err := of.MarshalJSON(); err != nil || json.Unmarshal(text, &v1alpha1.NodeReport{}) != nil {
			return of.GetName()
		}
	}
	return ""
}

func reportsErr(err error) error {
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%s: an administrator can bind the ClusterRole %s to you", lackText(listReports), viewer)
	}
	return fmt.Errorf("list nodereports.tenon.sh, which Tenon's chart brings: %w", err)
}

// nodesOfPool returns the nodes with the label of --pool. Without the flag there are none.
func (q *reportQuestion) nodesOfPool(ctx context.Context, c client.Client) (map[string]bool, error) {
	if q.pool == "" {
		return nil, nil
	}
	key, value, _ := strings.Cut(q.pool, "=")
	pool := map[string]bool{}
	for next := ""; ; {
		nodes := metav1.PartialObjectMetadataList{}
		nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := c.List(ctx, &nodes, client.Limit(pageSize), client.Continue(next)); err != nil {
			if apierrors.IsForbidden(err) {
				return nil, fmt.Errorf("--pool reads the labels of nodes, and %s: an administrator can bind the ClusterRole %s to you", lackText(listNodes), viewer)
			}
			return nil, fmt.Errorf("list the nodes: %w", err)
		}
		for i := range nodes.Items {
			if has, labelled := nodes.Items[i].Labels[key]; labelled && has == value {
				pool[nodes.Items[i].Name] = true
			}
		}
		if next = nodes.Continue; next == "" {
			break
		}
	}
	if len(pool) == 0 {
		return nil, fmt.Errorf("no node has the label %s", q.pool)
	}
	return pool, nil
}

// name names the nodes that do not count.
func (f *fleet) name(errOut io.Writer) {
	slices.Sort(f.Silent)
	slices.Sort(f.Without)
	if len(f.Silent) > 0 {
		fmt.Fprintf(errOut, "%s not counted, because the agent is silent: %s\n", table.Count(len(f.Silent), "node"), listed(f.Silent))
	}
	if len(f.Without) > 0 && len(f.outlooks) > 0 {
		fmt.Fprintf(errOut, "%s not counted, because the agent keeps no history, or has not read it yet: %s\n", table.Count(len(f.Without), "node"), listed(f.Without))
	}
}

// nothing says why there is no page.
func (q *reportQuestion) nothing(f fleet) error {
	switch {
	case len(f.Without) > 0:
		return fmt.Errorf("no node has an outlook: %s without one: tenond makes it of its history, which the key history of its configuration switches on (docs/configuration.md)", table.Count(len(f.Without), "node"))
	case len(f.Silent) > 0:
		return fmt.Errorf("no node has an outlook: the agent is silent on %s", table.Count(len(f.Silent), "node"))
	case q.pool != "" && q.node != "":
		return fmt.Errorf("node %q does not have the label %s", q.node, q.pool)
	case q.pool != "":
		return fmt.Errorf("no node with the label %s has a report", q.pool)
	}
	return errors.New("no node has an outlook: no agent of Tenon reports")
}

// reportedNodes returns the nodes with a report for a shell.
func (a *access) reportedNodes(ctx context.Context) (names []string) {
	c, err := a.client()
	if err != nil {
		return nil
	}
	if err := eachReport(ctx, c, func(r *v1alpha1.NodeReport) { names = append(names, r.Name) }); err != nil {
		return nil
	}
	return names
}
