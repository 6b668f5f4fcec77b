package plugin

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	fwk "k8s.io/kube-scheduler/framework"

	"tenon.sh/tenon/internal/cluster/kube"
)

// bigNode returns a node with 256 CPUs in 32 caches. It has pods.
func bigNode(b *testing.B) (*bench, *state, fwk.NodeInfo) {
	x := newBench(b, machine("n", 1, 32, 4))
	for i := range 40 {
		x.run(pinned(fmt.Sprint("there", i), 1+i%4, []int{100, 50}[i%2]), "n")
	}
	p, s := pinned("a", 4, 100), newState()
	x.PreFilter(b.Context(), s, p, nil)
	b.ReportAllocs()
	return x, s, named("n")
}

func BenchmarkFilter(b *testing.B) {
	x, s, n := bigNode(b)
	p, ctx := pinned("a", 4, 100), b.Context()
	for b.Loop() {
		if status := x.Filter(ctx, s, p, n); status != nil {
			b.Fatal(status)
		}
	}
}

// BenchmarkScore rates one node, with the parts of PreScore and NormalizeScore.
func BenchmarkScore(b *testing.B) {
	x, s, n := bigNode(b)
	p, ctx, nodes := pinned("a", 4, 100), b.Context(), make([]fwk.NodeInfo, 100)
	scores := make(fwk.NodeScoreList, len(nodes))
	for i := range nodes {
		nodes[i], scores[i].Name = n, n.Node().Name
	}
	for i := 0; b.Loop(); i++ {
		if i%len(nodes) == 0 {
			x.PreScore(ctx, s, p, nodes)
		}
		x.Score(ctx, s, p, n)
		if i%len(nodes) == len(nodes)-1 {
			x.NormalizeScore(ctx, s, p, scores)
		}
	}
}

// BenchmarkReserve reserves CPUs and then releases them, as if a later plugin
// had refused the pod. reserve-ns is the time of Reserve alone.
func BenchmarkReserve(b *testing.B) {
	x, s, _ := bigNode(b)
	p, ctx := pinned("a", 4, 100), b.Context()
	var spent time.Duration
	for b.Loop() {
		begun := time.Now()
		if status := x.Reserve(ctx, s, p, "n"); status != nil {
			b.Fatal(status)
		}
		spent += time.Since(begun)
		x.Unreserve(ctx, s, p, "n")
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "reserve-ns")
}

// BenchmarkBound measures the CPU time of the ledger for one pod, from its
// reservation to its end. The plugin sees first that the pod is bound, and then
// that it is deleted.
func BenchmarkBound(b *testing.B) {
	x, s, _ := bigNode(b)
	p, ctx := pinned("a", 4, 100), b.Context()
	if status := x.Reserve(ctx, s, p, "n"); status != nil {
		b.Fatal(status)
	}
	words := kube.ContractAnnotations(p, x.keeper.view("n").Map(), cycleOf(s).contract)
	there := bound(p, "n", words)
	for b.Loop() {
		if status := x.Reserve(ctx, s, p, "n"); status != nil {
			b.Fatal(status)
		}
		x.keeper.podChanged(p, there)
		x.keeper.podDeleted(there)
	}
}

// BenchmarkThousands measures the time of the plugin for one pod among 5,000
// nodes: it filters 600 nodes, unless PreFilter skips this, and rates 500. Before
// each pod, other memory pushes the nodes out of the caches of one processor, as
// the other plugins do. p10-ns is the time that nine of ten pods exceed, which
// other work on the machine hardly changes.
func BenchmarkThousands(b *testing.B) {
	const nodes, filtered, rated = 5000, 600, 500
	for _, refusing := range []int{0, 5} {
		b.Run(fmt.Sprintf("refusing=%d%%", refusing), func(b *testing.B) {
			x, all := newBench(b), make([]fwk.NodeInfo, nodes)
			rnd := rand.New(rand.NewPCG(13, 14))
			for i, at := range rnd.Perm(nodes) { // reports come in another order than the scheduler has
				all[at] = named(fmt.Sprintf("node-%05d", at))
				r := machine(all[at].Node().Name, 1, 8, 8)
				if i%100 < refusing {
					r.Status.CPUs.Manager = "kubelet"
				}
				x.keeper.reportChanged(r)
			}
			others, sum := make([]uint64, 1<<19), uint64(0) // 4 MB
			ctx, first, times := b.Context(), 0, []time.Duration(nil)
			feasible, scores := make([]fwk.NodeInfo, rated), make(fwk.NodeScoreList, rated)
			pod := func(name string) {
				p, s := pinned(name, 4, 100), newState()
				for i := 0; i < len(others); i += 8 {
					sum += others[i]
				}
				begun := time.Now()
				_, status := x.PreFilter(ctx, s, p, all)
				for i := 0; i < filtered && !status.IsSkip(); i++ {
					x.Filter(ctx, s, p, all[(first+i)%nodes])
				}
				spent := time.Since(begun)
				for i := range feasible {
					feasible[i] = all[(first+i)%nodes]
					scores[i].Name = feasible[i].Node().Name
				}
				begun = time.Now()
				x.PreScore(ctx, s, p, feasible)
				x.NormalizeScore(ctx, s, p, scores)
				times = append(times, spent+time.Since(begun))
				for i := range feasible {
					if node := scores[i].Name; x.Reserve(ctx, s, p, node).IsSuccess() {
						break
					}
				}
				first = (first + filtered) % nodes
			}
			for i := range 64 {
				pod(fmt.Sprint("before", i))
			}
			times = nil
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				pod(fmt.Sprint("pod", i%2000)) // a name that comes again moves its reservation
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/10].Nanoseconds()), "p10-ns")
			if sum != 0 {
				b.Fatal("the memory of others changed")
			}
		})
	}
}

// BenchmarkOthers measures the CPU time of the plugin for a pod that demands no
// CPUs.
func BenchmarkOthers(b *testing.B) {
	x, _, _ := bigNode(b)
	p, s, ctx := plain("web"), newState(), b.Context()
	p.Annotations = map[string]string{"team": "web"}
	for b.Loop() {
		x.PreFilter(ctx, s, p, nil)
		x.PreScore(ctx, s, p, nil)
		x.SignPod(ctx, p)
		x.Reserve(ctx, s, p, "n")
		x.Bind(ctx, s, p, "n")
	}
}
