package podpages

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"tenon.sh/tenon/internal/cluster/admission"
	"tenon.sh/tenon/internal/cluster/manifest"
	"tenon.sh/tenon/internal/cluster/schedulers"
	"tenon.sh/tenon/internal/decide/cpus/place"
	"tenon.sh/tenon/internal/model/cpus"
	"tenon.sh/tenon/internal/table"
)

// A FitAnswer says whether a pod of a manifest would get a node and CPUs.
type FitAnswer string

const (
	// FitPlaced means that the pod would get a node, and the CPUs that it asks
	// for.
	FitPlaced FitAnswer = "fits"
	// FitWaits means that it would wait.
	FitWaits FitAnswer = "waits"
	// FitUnmet means that the pod would not get the CPUs or resources that it asks
	// for, and would not wait for them: it names its node itself, or it goes to the
	// cluster's own scheduler, because tenon-manager does not run.
	FitUnmet FitAnswer = "unmet"
	// FitRefused means that the API server refuses to create it.
	FitRefused FitAnswer = "refused"
	// FitUnchecked means that the answer is not known: the nodes or their reports
	// could not be read, or there are too many pods before this one.
	FitUnchecked FitAnswer = "unchecked"
)

// These bound the work of fit. A pod that finds no place is no work: pods of the
// same manifest have the same answer.
const (
	maxPods  = 10_000 // that find a place
	maxAlike = 10     // equal answers of one manifest that are listed one by one
)

// A FitPage contains the answers for the pods of manifests.
type FitPage struct {
	Pods  []FitPod `json:"pods"`
	Fits  int      `json:"fits"`
	Total int      `json:"total"`
	// Profiles has one line for each manifest whose pods a profile changes.
	Profiles []string `json:"profiles,omitempty"`
	// Running has one line for each manifest whose pods run already.
	Running []string `json:"running,omitempty"`
	// Objectives has one line for each manifest whose pods state an objective.
	Objectives []string `json:"objectives,omitempty"`
	// Lasting has an entry for each manifest whose batch pods say how long they run.
	Lasting  []Lasting `json:"lasting,omitempty"`
	Faults   []string  `json:"faults,omitempty"`
	Warnings []string  `json:"warnings,omitempty"`
	// NotLookedAt lists what could not be read or asked, with the reasons.
	NotLookedAt []string `json:"notLookedAt,omitempty"`

	asked     bool // the API server was asked about all pods
	places    int  // how many more pods may find a place
	unchecked int
	lacks     Lacks
}

// A FitPod is the answer for one pod, or for many pods of a template that have
// the same answer.
type FitPod struct {
	Pod       string    `json:"pod"`
	Count     int       `json:"count"`
	Asks      Asks      `json:"asks"`
	Scheduler string    `json:"scheduler"`
	Answer    FitAnswer `json:"answer"`
	Node      string    `json:"node,omitempty"`
	Rating    *int64    `json:"rating,omitempty"`
	CPUs      string    `json:"cpus,omitempty"`
	Where     string    `json:"where,omitempty"`
	Reasons   []Reason  `json:"reasons,omitempty"`

	starts bool // on a node of the cluster's own scheduler, without its CPUs
}

// A Reason says why some nodes refuse a pod. Nodes is their number. It is 0 if
// the reason does not concern single nodes.
type Reason struct {
	Nodes int    `json:"nodes,omitempty"`
	Why   string `json:"why"`
}

// Fit places pods one after the other. It takes a pod as the API server would
// create it. Without this answer, it takes the pod as the webhook would change
// it. Like a scheduler, Fit prefers the node with the best CPUs, and then the
// node with fewer requests. Each placed pod takes its resources from the
// cluster for good. A pod whose scheduler does not run finds no place.
func (c *Cluster) Fit(wanted []manifest.Wanted, by Webhook, known []schedulers.Scheduler) *FitPage {
	page := &FitPage{asked: len(wanted) > 0, places: maxPods, lacks: c.lacks, NotLookedAt: c.lacks.texts()}
	for i := range wanted {
		c.fitWanted(page, &wanted[i], by, known)
	}
	if !page.asked || len(by.Profiles) == 0 { // else the webhook has read what the profiles refer to
		page.NotLookedAt = append(page.NotLookedAt, by.Unread...)
	}
	for _, s := range known {
		if why := s.Unknown(c.now); why != "" {
			page.NotLookedAt = append(page.NotLookedAt, fmt.Sprintf("whether scheduler %s runs: %s", s.Name, why))
		}
	}
	slices.Sort(page.NotLookedAt)
	page.NotLookedAt = slices.Compact(page.NotLookedAt)
	return page
}

// fitWanted places the pods of one manifest.
func (c *Cluster) fitWanted(page *FitPage, want *manifest.Wanted, by Webhook, known []schedulers.Scheduler) {
	as, profiles, wrong := placedPod(want, by)
	if want.Admission.Unasked != "" {
		page.NotLookedAt = append(page.NotLookedAt, want.Admission.Unasked)
	}
	if want.Admission.Silent != "" {
		page.NotLookedAt = append(page.NotLookedAt, want.Admission.Silent)
	}
	page.asked = page.asked && (want.Admission.Pod != nil || want.Admission.Refused != "")
	for _, f := range wrong {
		page.Faults = append(page.Faults, want.Name+": "+f)
	}
	page.Running = append(page.Running, c.runningTexts(want)...)
	if why := want.Admission.Refused; why != "" {
		page.add(FitPod{
			Pod: cmp.Or(want.Pod.Namespace, corev1.NamespaceDefault) + "/" + want.Name, Count: c.count(want, as), Asks: asksOf(demandOf(as)), Scheduler: schedulers.Of(as), Answer: FitRefused, Reasons: []Reason{{Why: why}},
		})
		return
	}
	said := map[string]bool{} // warnings of the webhook about faults that the page has
	for _, f := range faultsOf(as) {
		page.Faults = append(page.Faults, fmt.Sprintf("%s: %v", want.Name, f))
		said[admission.IgnoredIn(as, f).String()] = true
	}
	if profiles != "" {
		page.Profiles = append(page.Profiles, fmt.Sprintf("%s: as ClusterColocationProfile %s makes it", want.Name, profiles))
	}
	for _, text := range want.Admission.Warnings {
		if !said[text] {
			page.Warnings = append(page.Warnings, want.Name+": "+text)
		}
	}
	if l, says := c.lasting(want, as); says { // before these pods take room
		page.Lasting = append(page.Lasting, l)
	}
	first := len(page.Pods)
	if want.EachNode {
		for _, p := range c.onEachNode(want, as) {
			page.add(c.fitOne(page, want, p, known, nil))
		}
	} else {
		c.fitAlike(page, want, as, known)
	}
	if text := c.objectiveText(want.Name, as, page.Pods[first:]); text != "" {
		page.Objectives = append(page.Objectives, text)
	}
}

// fitAlike places the pods of a manifest, which are alike. If a pod finds no
// place, none of those after it does: it has taken nothing.
func (c *Cluster) fitAlike(page *FitPage, want *manifest.Wanted, as *corev1.Pod, known []schedulers.Scheduler) {
	late := 0
	var answers []answer
	for i := range want.Count {
		p := alike(want, as, i)
		if page.places == 0 {
			page.add(FitPod{
				Pod: restName(want, as, i), Count: want.Count - i, Asks: asksOf(p.demand), Scheduler: schedulers.Of(as), Answer: FitUnchecked,
				Reasons: []Reason{{Why: fmt.Sprintf("kubectl tenon fit places at most %d pods", maxPods)}},
			})
			return
		}
		if answers == nil {
			answers = c.askAll(p)
		}
		f := c.fitOne(page, want, p, known, answers)
		if f.Answer == FitPlaced {
			page.places--
			answers = c.askBestAgain(answers, p)
		} else if f.starts { // and has taken from another node
			page.places--
			answers = nil
		} else if late++; late > maxAlike {
			f.Pod, f.Count = restName(want, as, i), want.Count-i
			page.add(f)
			return
		}
		page.add(f)
	}
}

// restName names the pods of a manifest from number i on, counted from 0.
func restName(want *manifest.Wanted, as *corev1.Pod, i int) string {
	p := alike(want, as, i)
	if i+1 == want.Count {
		return nameOf(p.Pod)
	}
	return fmt.Sprintf("%s to %d", nameOf(p.Pod), want.Count)
}

// fitOne places one pod of a manifest. answers are those of the nodes, or nil.
func (c *Cluster) fitOne(page *FitPage, want *manifest.Wanted, p candidate, known []schedulers.Scheduler, answers []answer) FitPod {
	p.UID = types.UID(fmt.Sprintf("fit-%d", page.Total+1))
	f := c.fit(p, known, answers)
	if want.NoManager != "" && isUnnamed(p) && f.Answer != FitUnchecked {
		c.placeUnnamed(page, &f, p, want)
	}
	return f
}

func (f *FitPage) add(p FitPod) {
	f.Pods = append(f.Pods, p)
	f.Total += p.Count
	switch p.Answer {
	case FitPlaced:
		f.Fits += p.Count
	case FitUnchecked:
		f.unchecked += p.Count
	}
}

// count returns the number of pods of a manifest.
func (c *Cluster) count(want *manifest.Wanted, as *corev1.Pod) int {
	if want.EachNode {
		return len(c.onEachNode(want, as))
	}
	return want.Count
}

// alike returns pod number i of a manifest, counted from 0.
func alike(want *manifest.Wanted, as *corev1.Pod, i int) candidate {
	suffix := ""
	if want.Count > 1 {
		suffix = fmt.Sprintf(" %d", i+1)
	}
	p := candidateOf(want.Name+suffix, as, as.Spec.NodeName)
	p.pinned = p.only != ""
	return p
}

func candidateOf(name string, as *corev1.Pod, only string) candidate {
	p := candidate{Pod: as.DeepCopy(), only: only, demand: demandOf(as)}
	p.Name = name
	return p
}

// onEachNode returns the pods of a DaemonSet.
func (c *Cluster) onEachNode(want *manifest.Wanted, as *corev1.Pod) (pods []candidate) {
	for _, n := range c.nodes {
		p := candidateOf(want.Name+" on "+n.Name, as, n.Name)
		// The controller of DaemonSets adds this toleration.
		p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})
		if c.lacks.Nodes != "" || n.exclusion(p) == "" {
			pods = append(pods, p)
		}
	}
	return pods
}

// fit places one pod. answers are those of the nodes, or nil.
func (c *Cluster) fit(p candidate, known []schedulers.Scheduler, answers []answer) FitPod {
	f := FitPod{Pod: nameOf(p.Pod), Count: 1, Asks: asksOf(p.demand), Scheduler: schedulers.Of(p.Pod), Answer: FitWaits}
	if why := c.lacks.hides(p.demand); why != "" {
		f.Answer, f.Reasons = FitUnchecked, []Reason{{Why: why}}
		return f
	}
	if p.pinned {
		if f.Answer = FitUnmet; c.node(p.only) == nil {
			f.Reasons = []Reason{{Why: fmt.Sprintf("node %s, which the pod names, does not exist", p.only)}}
			return f
		}
	} else if i := slices.IndexFunc(known, func(s schedulers.Scheduler) bool { return s.Name == f.Scheduler }); i >= 0 {
		if state, text := known[i].State(c.now); state.IsAbsence(f.Scheduler) {
			f.Reasons = []Reason{{Why: fmt.Sprintf("for scheduler %s, which %s", f.Scheduler, text)}}
			return f
		}
	}
	if answers == nil {
		answers = c.askAll(p)
	}
	if len(answers) == 0 || len(answers[0].why) > 0 {
		f.Reasons = countReasons(answers)
		if p.pinned && len(answers) == 1 && answers[0].lack != nil {
			f.Reasons = append(f.Reasons, Reason{Why: fmt.Sprintf("the kubelet would reject the pod (OutOf%s)", answers[0].lack.name)})
		}
		return f
	}
	best := answers[0]
	if p.demand != nil {
		contract, why := c.ledger.Assume(place.Pod{UID: place.UID(p.UID), Request: *p.demand}, best.node.Name)
		if why != cpus.Fits { // cannot happen: the pod has just fitted
			f.Reasons = []Reason{{Nodes: 1, Why: why.Text()}}
			return f
		}
		f.Rating, f.CPUs, f.Where = &best.worth, contract.CPUs.String(), describeOffer(p.demand.Policy, best.offer)
	} else {
		f.Where = cmp.Or(c.ground(best.node, p.Pod), "which CPUs is not known: "+cmp.Or(best.node.age, cpus.NoReport.Text()))
	}
	best.node.take(p.Pod)
	f.Answer, f.Node = FitPlaced, best.node.Name
	return f
}

// countReasons counts the nodes that refuse a pod, by their reason. The numbers
// of a resource are those of the node that has the most of it left.
func countReasons(answers []answer) []Reason {
	if len(answers) == 0 {
		return []Reason{{Why: "the cluster has no node"}}
	}
	count, most := map[string]int{}, map[string]answer{}
	for _, a := range answers {
		why := strings.Join(a.why, "; ")
		count[why]++
		if l := most[why].lack; a.lack != nil && (l == nil || a.lack.left.Cmp(l.left) > 0) {
			most[why] = a
		}
	}
	var all []Reason
	for _, why := range slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), strings.Compare(a, b))
	}) {
		text := why
		if best := most[why]; best.lack != nil { // it is the first reason
			text = best.lack.String()
			if count[why] > 1 {
				text += " on the node with the most"
			}
			text = strings.Join(append([]string{text}, best.why[1:]...), "; ")
		}
		all = append(all, Reason{Nodes: count[why], Why: text})
	}
	return all
}

// fitColumns are what the page shows of a pod.
var fitColumns = []table.Column[FitPod]{
	{Name: "POD", Text: func(p FitPod) string { return p.Pod }},
	{Name: "ASKS FOR", Text: func(p FitPod) string {
		if p.Answer == FitRefused && p.Asks.Policy == "" {
			return "-" // what the pod asks for may be the reason
		}
		return p.Asks.Text
	}},
	{Name: "NODE", Text: func(p FitPod) string { return table.OrDash(p.Node) }},
	{Name: "RATING", Text: func(p FitPod) string { return ratingText(p.Rating) }},
	{Name: "CPUS", Text: func(p FitPod) string { return table.OrDash(p.CPUs) }},
	{Name: "WHERE, OR WHY NOT", Text: FitPod.whereText},
}

// whereText says where the CPUs of the pod lie, or that it has none.
func (p FitPod) whereText() string {
	switch {
	case p.Answer == FitRefused:
		return "refused"
	case p.Answer == FitUnchecked:
		return "not known"
	case p.Answer == FitPlaced:
		return p.Where
	case p.starts:
		return "starts without them"
	}
	return "no"
}

// Text prints the page.
func (f *FitPage) Text() string {
	var b strings.Builder
	table.Write(&b, "", fitColumns, f.Pods)
	late := slices.DeleteFunc(slices.Clone(f.Pods), func(p FitPod) bool { return p.Answer == FitPlaced })
	for len(late) > 0 {
		same := 1
		for same < len(late) && late[same].Answer == late[0].Answer && slices.Equal(late[same].Reasons, late[0].Reasons) {
			same++
		}
		printReasons(&b, late[:same])
		late = late[same:]
	}
	for _, text := range slices.Concat(f.Running, f.Profiles, f.Objectives) {
		fmt.Fprintln(&b, text)
	}
	for _, l := range f.Lasting {
		fmt.Fprintln(&b, l)
	}
	for _, text := range f.Faults {
		fmt.Fprintf(&b, "not as written: %s\n", text)
	}
	for _, text := range f.Warnings {
		fmt.Fprintf(&b, "the API server warns: %s\n", text)
	}
	var atMost, unchecked string
	if f.lacks.Pods != "" && f.Fits > 0 {
		atMost = "At most "
	}
	if f.unchecked > 0 {
		unchecked = fmt.Sprintf("; of %d it is not known", f.unchecked)
	}
	fmt.Fprintf(&b, "\n%s%d of %s would find a place now%s.\n", atMost, f.Fits, table.Count(f.Total, "pod"), unchecked)
	if f.asked {
		fmt.Fprintln(&b, "The API server was asked to create such pods, without storing them.")
	}
	fmt.Fprintln(&b, uncheckedText)
	for _, text := range f.NotLookedAt {
		fmt.Fprintf(&b, "Not looked at: %s.\n", text)
	}
	return b.String()
}

// printReasons prints why pods find no place. All pods have the same answer.
func printReasons(b *strings.Builder, pods []FitPod) {
	var names []string
	for _, p := range pods {
		names = append(names, p.Pod)
	}
	text := strings.Join(names, ", ")
	switch pods[0].Answer {
	case FitRefused:
		fmt.Fprintf(b, "\n%s: the API server refuses it: %s\n", text, pods[0].Reasons[0].Why)
		return
	case FitUnchecked:
		fmt.Fprintf(b, "\nWhether %s would find a place is not known: %s\n", text, pods[0].Reasons[0].Why)
		return
	case FitUnmet:
		where := " on the node that it names"
		if pods[0].starts {
			where = ", and would start without it"
		}
		fmt.Fprintf(b, "\n%s would not get what it asks for%s:\n", text, where)
	default:
		fmt.Fprintf(b, "\n%s would wait:\n", text)
	}
	for _, r := range pods[0].Reasons {
		if r.Nodes == 0 {
			fmt.Fprintf(b, "  %s\n", r.Why)
		} else {
			fmt.Fprintf(b, "  %s: %s\n", table.Count(r.Nodes, "node"), r.Why)
		}
	}
}
