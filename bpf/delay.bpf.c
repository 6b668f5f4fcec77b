// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * Run-queue delay: the time for which the tasks of LS slots wait for a CPU,
 * and the slots that run there meanwhile.
 *
 * The only program is on sched_switch. It needs no hook on wake-ups and reads no
 * clock, because the kernel stores two values of each task for
 * /proc/PID/schedstat: the time at which a waiting task was queued
 * (task_struct.sched_info.last_queued, in the clock of its run queue), and the
 * sum of its earlier waits (run_delay). At sched_switch both still describe the
 * wait that ends now, and the clock of the run queue is up to date. Therefore a
 * histogram agrees with schedstat. A wait begins with a wake-up or a preemption.
 * It includes the time in which the quota of a group throttles a task.
 *
 * Needs CONFIG_SCHED_INFO and CONFIG_FAIR_GROUP_SCHED. Its cost is measured in
 * docs/experiments/2026-11-22-bpf-hook-cost.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "cgroup.bpf.h"
#include "tenon.h"

/* The kernel offers the types that this program reads to GPL programs only. */
char LICENSE[] SEC("license") = "GPL";

/* Constants that user space sets before loading. */
const volatile __u64 alarm_waits = 1; /* number of too long waits of a slot that causes an event, see tenon_alarm */
const volatile __u64 alarm_window_ns = 1;
const volatile __u64 alarm_gap_ns = 1; /* minimum time between two events */
const volatile __u64 beside_limit_ns = 1; /* amount of time of LS beside BE in a window that causes an event */

/* Written by user space: versions of the table of groups and of the attachment. */
__u32 generation = 1;
__u32 epoch = 1;

/* Time of the last event about waits, and of the last one about BE beside LS. */
__u64 alarmed = 0;
__u64 besided = 0;

/* Unused variable that makes bpf2go generate the numbers of tenon_limit. */
const enum tenon_limit *limits;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TENON_GROUPS);
	__type(key, __u64); /* cgroup id: the inode number of its directory */
	__type(value, struct tenon_group);
} groups SEC(".maps");

/*
 * Arrays with an entry per CPU, instead of per-CPU arrays: user space maps
 * them, reads them without a system call, and sets their size before loading.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs */
	__type(key, __u32);
	__type(value, struct tenon_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TENON_SLOTS); /* times the number of CPUs */
	__type(key, __u32);		  /* CPU * TENON_SLOTS + slot */
	__type(value, struct tenon_delay);
} delays SEC(".maps");

/* Time for which a slot waited while another ran: ns, summed over all CPUs. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, TENON_SLOTS * TENON_SLOTS);
	__type(key, __u32); /* waiter * TENON_SLOTS + runner */
	__type(value, __u64);
} matrix SEC(".maps");

/* The expected values of sched_info when an LS task is next put on a CPU. */
struct tenon_task {
	__u64 arrivals;
	__u64 delay_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct tenon_task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, TENON_SLOTS);
	__type(key, __u32);
	__type(value, struct tenon_alarm);
} alarms SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096); /* one page; user space sets it */
} events SEC(".maps");

/* begin resets the times of a CPU when an epoch begins there, because earlier runs are not known. */
static __always_inline void begin(struct tenon_cpu *c, __u64 now)
{
	struct tenon_run *last = &c->runs[c->head % TENON_RUNS];

	c->epoch = epoch;
	c->begin = now;
	last->slot = TENON_ELSEWHERE;
	last->end = now;
}

/* ran adds the time since the last switch to the slot that ran. */
static __always_inline void ran(struct tenon_cpu *c, __u64 now)
{
	struct tenon_run *last = &c->runs[c->head % TENON_RUNS];
	struct tenon_group was = c->running;
	__u64 ns = now - c->since;

	c->slot_ns[was.slot % TENON_SLOTS] += ns;
	c->class_ns[was.class % TENON_CLASSES] += ns;
	if (last->slot != was.slot) { /* else one run goes on in another thread */
		c->head++;
		last = &c->runs[c->head % TENON_RUNS];
		last->slot = was.slot;
	}
	last->end = now;
}

/* learn finds the slot of a cgroup, which is that of the nearest tracked ancestor. */
static __noinline void learn(struct tenon_known *k, struct cgroup *cg, __u64 cgroup)
{
	struct tenon_group *g = 0;
	__u32 of = generation; /* before the table is read */
	int i;

	for (i = 0; i < CGROUP_DEPTH && cg; i++) {
		__u64 id = BPF_CORE_READ(cg, kn, id);

		g = bpf_map_lookup_elem(&groups, &id);
		if (g)
			break;
		cg = BPF_CORE_READ(cg, self.parent, cgroup);
	}
	k->slot = g ? g->slot : TENON_UNTRACKED;
	k->class = g ? g->class : TENON_OTHER;
	k->cgroup = cgroup;
	k->generation = of;
}

/* As in the kernel: the compiler neither splits, repeats nor reorders these accesses. */
#define READ_ONCE(x) (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile typeof(x) *)&(x) = (value))

/*
 * The sibling of a CPU reads what runs there. One load and one store of the
 * whole give it a slot and the class of the same slot.
 */
typedef __u64 __attribute__((may_alias)) whole_group;
_Static_assert(sizeof(struct tenon_group) == sizeof(whole_group), "a group is not one word");

static __always_inline struct tenon_group load_running(const struct tenon_cpu *c)
{
	struct tenon_group group;

	*(whole_group *)&group = READ_ONCE(*(const whole_group *)&c->running);
	return group;
}

static __always_inline void store_running(struct tenon_cpu *c, struct tenon_group group)
{
	WRITE_ONCE(*(whole_group *)&c->running, *(whole_group *)&group);
}

/* group_of returns the slot and class of a task that is about to run. */
static __always_inline struct tenon_group group_of(struct tenon_cpu *c, struct task_struct *p)
{
	struct tenon_known *k;
	struct cgroup *cg;
	__u64 id;

	if (!p->pid)
		return (struct tenon_group){TENON_IDLE, TENON_NONE};
	if (p->flags & PF_KTHREAD)
		return (struct tenon_group){TENON_KERNEL, TENON_OTHER};
	cg = cgroup_of(p);
	id = cg->kn->id; /* 0 in an autogroup, which has no cgroup */
	k = &c->known[id % TENON_KNOWN];
	if (k->cgroup != id || k->generation != generation)
		learn(k, cg, id);
	return (struct tenon_group){k->slot, k->class};
}

static __always_inline __u32 bucket(__u64 ns)
{
	__u64 v = ns >> TENON_LEAST_BITS;
	__u32 n = 0;

	if (v >> 32)
		return TENON_BUCKETS - 1;
	if (v >> 16) {
		v >>= 16;
		n += 16;
	}
	if (v >> 8) {
		v >>= 8;
		n += 8;
	}
	if (v >> 4) {
		v >>= 4;
		n += 4;
	}
	if (v >> 2) {
		v >>= 2;
		n += 2;
	}
	if (v >> 1) {
		v >>= 1;
		n += 1;
	}
	n += v; /* 0 or 1 by now */
	return n < TENON_BUCKETS ? n : TENON_BUCKETS - 1;
}

/* The part of a wait for which a blamed slot ran, and the longest such run. */
struct spare {
	__u64 sum_ns;
	__u64 ns;
	__u32 slot;
};

/* blame divides a wait on this CPU among the slots that ran during it. */
static __always_inline struct spare blame(struct tenon_cpu *c, struct tenon_delay *d, __u32 waiter, __u64 queued,
					  __u64 now)
{
	struct spare spare = {.slot = TENON_ELSEWHERE};
	__u64 from = queued > c->begin ? queued : c->begin;
	__u64 until = now; /* what lies before is still to be shared out */
	int i;

	for (i = 0; i < TENON_RUNS && until > from; i++) {
		struct tenon_run *r = &c->runs[(c->head - i) % TENON_RUNS];
		__u64 start = c->runs[(c->head - i - 1) % TENON_RUNS].end;
		__u32 slot = r->slot % TENON_SLOTS;
		struct tenon_alarm *a;
		__u64 ns;

		if (start < from)
			start = from;
		if (start > until) /* the oldest run: its start is overwritten */
			break;
		ns = until - start;
		until = start;
		if (slot == TENON_IDLE) {
			d->idle_ns += ns;
		} else {
			__u32 key = waiter * TENON_SLOTS + slot;
			__u64 *sum = bpf_map_lookup_elem(&matrix, &key);

			if (sum)
				__sync_fetch_and_add(sum, ns);
		}
		a = bpf_map_lookup_elem(&alarms, &slot);
		if (a)
			ns &= a->blamed; /* all or nothing, without a branch for the verifier */
		spare.sum_ns += ns;
		if (ns > spare.ns) {
			spare.ns = ns;
			spare.slot = slot;
		}
	}
	until -= queued;
	d->elsewhere_ns += until;
	spare.sum_ns += until; /* it may have been anybody */
	return spare;
}

/*
 * report counts waits that are too long, and sends an event if there are enough. Events are
 * rare, so that user space can act on each. If two CPUs race, the window may be slightly wrong.
 */
static __noinline void report(struct tenon_alarm *a, const struct tenon_event *what, __u64 spared, __u64 now)
{
	struct tenon_event *e;
	__u64 last, waits;

	/* Signed, because the clocks of two run queues may differ slightly. */
	if ((__s64)(now - a->since) > (__s64)alarm_window_ns) {
		a->since = now;
		a->waits = 0;
	}
	/* A wait of three limits counts as three waits of one limit. */
	waits = spared / a->wait_ns;
	waits += __sync_fetch_and_add(&a->waits, waits);
	if (waits < alarm_waits)
		return;
	last = alarmed;
	if ((__s64)(now - last) < (__s64)alarm_gap_ns)
		return;
	if (__sync_val_compare_and_swap(&alarmed, last, now) != last)
		return; /* another CPU was faster */
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e)
		return; /* user space has not read the last ones */
	*e = *what;
	e->at_ns = bpf_ktime_get_ns();
	e->waits = waits;
	bpf_ringbuf_submit(e, 0);
	a->waits = 0;
}

/* waited records the wait that ends when an LS task is put on the CPU. */
static __always_inline void waited(struct tenon_cpu *c, struct task_struct *p, __u32 cpu, __u64 now)
{
	__u64 queued = p->sched_info.last_queued;
	__u64 before = p->sched_info.run_delay;
	__u64 arrivals = p->sched_info.pcount;
	__u32 slot = c->running.slot % TENON_SLOTS;
	__u32 key = cpu * TENON_SLOTS + slot;
	struct tenon_alarm *a;
	struct tenon_delay *d;
	struct tenon_task *t;
	struct spare spare;
	__u64 here, elsewhere = 0;

	if (!queued || queued > now) /* the kernel counts no wait either */
		return;
	d = bpf_map_lookup_elem(&delays, &key);
	if (!d)
		return;
	here = now - queued;
	/*
	 * A task that is moved while it waits is queued again on the other CPU.
	 * Its wait before the move is in run_delay. The program can compute it
	 * if it has seen the task's last arrival, and so knows the older value.
	 */
	t = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (t) {
		if (t->arrivals == arrivals && before > t->delay_ns)
			elsewhere = before - t->delay_ns;
		t->arrivals = arrivals + 1;
		t->delay_ns = before + here;
	}
	d->count[bucket(here + elsewhere)]++;
	d->sum_ns += here + elsewhere;
	d->elsewhere_ns += elsewhere;
	spare = blame(c, d, slot, queued, now);
	a = bpf_map_lookup_elem(&alarms, &slot);
	if (a && a->wait_ns && spare.sum_ns + elsewhere >= a->wait_ns) {
		struct tenon_event what = {
			.wait_ns = here + elsewhere,
			.runner_ns = spare.ns,
			.runner = spare.slot,
			.slot = slot,
			.cpu = cpu,
		};

		report(a, &what, spare.sum_ns + elsewhere, now);
	}
}

/*
 * beside adds the time for which LS ran with BE on the sibling, when one
 * of the two stops. A long time causes an event. The sibling may switch
 * meanwhile: it stores the time of the switch first, and is read in the
 * opposite order, so that a new slot does not get the time of the one
 * before it. A CPU that reorders loads or stores may get one measurement
 * wrong.
 */
static __noinline void beside(struct tenon_cpu *c, __u32 cpu, __u64 now)
{
	__u32 key = c->sibling - 1;
	struct tenon_cpu *s = bpf_map_lookup_elem(&cpus, &key);
	struct tenon_group own = c->running, other;
	bool ls = own.class == TENON_LS;
	struct tenon_event *e;
	__u64 ns = now - c->since;
	__s64 both;

	if (!s || s->epoch != epoch)
		return;
	other = load_running(s);
	if (other.class != (ls ? TENON_BE : TENON_LS))
		return;
	both = now - READ_ONCE(s->since);
	if (both <= 0) /* it began this moment, by a clock that differs a little */
		return;
	if ((__u64)both < ns)
		ns = both;
	if ((__s64)(now - c->beside_since) > (__s64)alarm_window_ns) {
		c->beside_since = now;
		c->beside_ns = 0;
	}
	c->beside_ns += ns;
	if (c->beside_ns < beside_limit_ns)
		return;
	if ((__s64)(now - besided) < (__s64)alarm_gap_ns)
		return;
	besided = now; /* two CPUs at once send two events */
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e)
		return; /* user space has not read the last ones */
	e->at_ns = bpf_ktime_get_ns();
	e->wait_ns = c->beside_ns;
	e->runner_ns = ns;
	e->runner = ls ? other.slot : own.slot;
	e->slot = ls ? own.slot : other.slot;
	e->cpu = ls ? cpu : key;
	e->waits = 0;
	bpf_ringbuf_submit(e, 0);
	c->beside_ns = 0;
}

SEC("tp_btf/sched_switch")
int BPF_PROG(tenon_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 cpu = bpf_get_smp_processor_id();
	struct tenon_cpu *c = bpf_map_lookup_elem(&cpus, &cpu);
	__u64 now;

	if (!c)
		return 0;
	now = next->se.cfs_rq->rq->clock;
	if (c->epoch == epoch) {
		if (c->sibling && (c->running.class == TENON_LS || c->running.class == TENON_BE))
			beside(c, cpu, now);
		ran(c, now);
	} else {
		begin(c, now);
	}
	WRITE_ONCE(c->since, now);
	c->switches++;
	store_running(c, group_of(c, next));
	if (c->running.class == TENON_LS)
		waited(c, next, cpu, now);
	return 0;
}
