// SPDX-License-Identifier: GPL-2.0-only
/*
 * Design B of decision 25, for the experiment only: a sched_ext scheduler for
 * all threads (no SCX_OPS_SWITCH_PARTIAL). What it does with BE is what the
 * product does, by the product's own programs, which it calls. What is added is
 * what the kernel's fair class does in the product: LS and everything else.
 *
 *	a queue for each CPU, in order of vtime, for LS and the others; a CPU that
 *	has none of its own takes one of another CPU before it asks for BE
 *	select_cpu: the CPU of before if its core has no LS, an idle core, a CPU
 *	that runs BE, an idle thread
 *	a thread that is woken on an idle CPU, or on one that runs BE, goes to the
 *	CPU's own queue and preempts; so do kernel threads of one CPU
 *
 * The hook at sched_switch is gone: every switch is told by ops.running or
 * ops.update_idle. That a thread was preempted inside the kernel they do not
 * tell, so nothing is hurried.
 *
 * Counters are made of the unused ones of the product's CPUs.
 */
#define sched_ext_ops sched_ext_ops_partial /* its table is not loaded */
#include "scheduler.bpf.c"
#undef sched_ext_ops

#define SCX_DSQ_LOCAL		   0x8000000000000002ULL
#define SCX_ENQ_PREEMPT		   (1ULL << 32)
#define SCX_OPS_KEEP_BUILTIN_IDLE (1ULL << 0)
#define SCX_PICK_IDLE_CORE	   (1ULL << 0)

#define DSQ_FAIR      0x50000ULL
#define FAIR_SLICE_NS (3 * QOS_MS)

enum {
	FULL_LS_CALLS = 16, /* of select_cpu, enqueue, running and stopping for LS */
	FULL_OTHER_CALLS,   /* and for the rest but BE */
	FULL_DISPATCHES,
	FULL_IDLES,	/* of update_idle */
	FULL_ENABLED,	/* threads that came to sched_ext */
	FULL_DIRECT,	/* LS and others that went to a CPU's own queue */
	FULL_PREEMPTED_BE, /* of them: where BE ran */
	FULL_QUEUED,	/* and that went to DSQ_FAIR */
	FULL_STOLEN,	/* taken from another CPU's */
	FULL_PUSHED,	/* for which another CPU was kicked */
	FULL_DROPPED,	/* see lose_at */
};

const volatile bool early; /* announce LS, see there */

/* A fault, for the test of what it does: a thread of this class is lost when it is enqueued at this time or later, once. */
__u64 lose_at;
__u32 lose_class;

static __u64 fair_now; /* the vtime of whoever came to a CPU last */

struct task_struct___full {
	int nr_cpus_allowed;
} __attribute__((preserve_access_index));

__s32 scx_bpf_pick_idle_cpu(const struct cpumask *cpus_allowed, __u64 flags) __ksym;
#if ABI >= 619
bool scx_bpf_task_set_dsq_vtime(struct task_struct *p, __u64 vtime) __ksym;
#define set_vtime(p, v) scx_bpf_task_set_dsq_vtime(p, v)
#else
#define set_vtime(p, v) ((p)->scx.dsq_vtime = (v))
#endif

static __always_inline bool bound(struct task_struct *p)
{
	return ((struct task_struct___full *)p)->nr_cpus_allowed == 1;
}

/* class_in is the class of a thread. BE is told by its policy, as in the product. */
static __always_inline enum qos_class class_in(struct scx_cpu *c, struct task_struct *p)
{
	enum qos_class is;

	if (p->policy == SCHED_EXT)
		return QOS_BE;
	if (p->flags & PF_KTHREAD)
		return QOS_NORMAL;
	is = group_of(c, p)->class;
	return is == QOS_BE ? QOS_NORMAL : is;
}

/*
 * announce sends BE off the siblings of a CPU that will run LS next, before it
 * does: what a scheduler of all threads can do, and one of BE cannot. The bit is
 * taken back when somebody else comes to the CPU after all.
 */
static __noinline void announce(struct scx_cpu *here, __u32 cpu)
{
	const volatile struct scx_place *place = place_of(cpu);
	struct qos_core *core = core_of(place);
	__u64 now = bpf_ktime_get_ns();
	__u32 be;

	if (!core)
		return;
	be = qos_ls_start(&params, core, place->thread, now);
	if (be) {
		count(here, SCX_EXPELS);
		expelled(place->core, be, now);
		kick(place->core, be, 0);
	}
}

static __always_inline void called_for(struct scx_cpu *c, enum qos_class class)
{
	c->counts[class == QOS_LSX || class == QOS_LS ? FULL_LS_CALLS : FULL_OTHER_CALLS]++;
}

/* switched is the product's hook: who comes to a CPU. */
static __noinline void switched(struct scx_cpu *c, __u32 cpu, enum qos_class is, __u64 now)
{
	const volatile struct scx_place *place = place_of(cpu);
	struct qos_core *core = core_of(place);
	enum qos_class was = c->class;
	struct qos_kicks k;
	bool was_lsx;

	if (!core || !place->known)
		return;
	if (c->since)
		c->class_ns[was & (QOS_CLASSES - 1)] += now - c->since;
	c->since = now;
	c->class = is;
	count(c, SCX_SWITCHES);
	if (c->refused_at && is != QOS_NONE)
		left_idle(c, now);
	was_lsx = qos_read(&core->ls) & qos_bit(place->thread);
	if (was_lsx != (is == QOS_LSX)) {
		k = qos_switch(&params, core, place->thread, is, now);
		if (was_lsx && params.hold_ns) {
			k.wake |= qos_read(&core->expelled);
			if (c->armed || is == QOS_NONE) {
				c->left = k.wake && !c->armed;
				k.wake = 0;
			}
		} else {
			c->left = 0;
		}
		c->armed = 0;
		if (k.preempt) {
			count(c, SCX_EXPELS);
			expelled(place->core, k.preempt, now);
		}
		if (k.preempt | k.wake)
			kick(place->core, k.preempt, k.wake);
	}
	if (was == QOS_BE && is != QOS_BE && is != QOS_NONE)
		count(c, SCX_PREEMPTED);
}

/* runs_be finds a CPU that runs BE and that a thread may have: the one it was on if that is so. */
static __noinline __s32 runs_be(struct task_struct *p, __s32 prev)
{
	struct scx_cpu *c = cpu_at(prev);
	__s32 cpu;

	if (c && c->class == QOS_BE && bpf_cpumask_test_cpu(prev, p->cpus_ptr))
		return prev;
	each_below (cpu, cpu_count) {
		c = cpu_at(cpu);
		if (c && c->class == QOS_BE && bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			return cpu;
	}
	return -1;
}

SEC("struct_ops/full_select_cpu")
__s32 BPF_PROG(full_select_cpu, struct task_struct *p, __s32 prev_cpu, __u64 wake_flags)
{
	struct scx_cpu *here = cpu_at(bpf_get_smp_processor_id());
	const volatile struct scx_place *place = place_of(prev_cpu);
	struct qos_core *core = core_of(place);
	enum qos_class is;
	__s32 cpu = -1;

	if (!here || !core)
		return prev_cpu;
	is = class_in(here, p);
	if (is == QOS_BE)
		return ____tenon_select_cpu(ctx, p, prev_cpu, wake_flags);
	called_for(here, is);
	if (!(qos_read(&core->ls) & ~qos_bit(place->thread)) && bpf_cpumask_test_cpu(prev_cpu, p->cpus_ptr) &&
	    scx_bpf_test_and_clear_cpu_idle(prev_cpu))
		cpu = prev_cpu;
	if (cpu < 0)
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, SCX_PICK_IDLE_CORE);
	if (cpu < 0) {
		cpu = runs_be(p, prev_cpu);
		if (cpu >= 0)
			return cpu; /* ops.enqueue preempts it */
		cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	}
	if (cpu < 0)
		return prev_cpu;
	count(here, FULL_DIRECT);
	if (early && is == QOS_LSX)
		announce(here, cpu);
	scx_insert(p, SCX_DSQ_LOCAL, FAIR_SLICE_NS, 0);
	return cpu;
}

SEC("struct_ops/full_enqueue")
void BPF_PROG(full_enqueue, struct task_struct *p, __u64 enq_flags)
{
	struct scx_cpu *here = cpu_at(bpf_get_smp_processor_id());
	__s32 cpu = scx_bpf_task_cpu(p), other;
	struct scx_cpu *there = cpu_at(cpu);
	enum qos_class is;
	__u64 vtime, least;

	if (!here || !there) { /* cannot be */
		scx_insert(p, SCX_DSQ_LOCAL, FAIR_SLICE_NS, enq_flags);
		return;
	}
	is = class_in(here, p);
	if (lose_at && is == lose_class && bpf_ktime_get_ns() >= lose_at) {
		lose_at = 0;
		count(here, FULL_DROPPED);
		return;
	}
	if (is == QOS_BE) {
		____tenon_enqueue(ctx, p, enq_flags);
		return;
	}
	called_for(here, is);
	if (p->flags & PF_KTHREAD && bound(p)) {
		count(here, FULL_DIRECT);
		scx_insert(p, SCX_DSQ_LOCAL, FAIR_SLICE_NS, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	if ((there->class == QOS_BE || there->class == QOS_NONE) && !queued(DSQ_FAIR + cpu)) {
		count(here, FULL_DIRECT);
		if (there->class == QOS_BE)
			count(here, FULL_PREEMPTED_BE);
		if (early && is == QOS_LSX)
			announce(here, cpu);
		scx_insert(p, SCX_DSQ_LOCAL, FAIR_SLICE_NS, enq_flags | SCX_ENQ_PREEMPT);
		return;
	}
	count(here, FULL_QUEUED);
	least = fair_now > FAIR_SLICE_NS ? fair_now - FAIR_SLICE_NS : 0;
	vtime = p->scx.dsq_vtime;
	if (vtime < least)
		vtime = least;
	scx_insert_vtime(p, DSQ_FAIR + cpu, FAIR_SLICE_NS, vtime, enq_flags);
	if (bound(p) || immovable(p))
		return;
	other = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (other >= 0) {
		scx_kick(other, SCX_KICK_IDLE);
	} else {
		other = runs_be(p, cpu);
		if (other >= 0)
			scx_kick(other, SCX_KICK_PREEMPT);
	}
	if (other >= 0)
		count(here, FULL_PUSHED);
}

SEC("struct_ops/full_dispatch")
void BPF_PROG(full_dispatch, __s32 cpu, struct task_struct *prev)
{
	struct scx_cpu *c = cpu_at(cpu);
	__s32 i;

	if (!c)
		return;
	count(c, FULL_DISPATCHES);
	if (queued(DSQ_FAIR + cpu) && scx_take(DSQ_FAIR + cpu))
		return;
	if (prev && prev->scx.flags & SCX_TASK_QUEUED && class_in(c, prev) != QOS_BE) {
		scx_set_slice(prev, FAIR_SLICE_NS);
		return;
	}
	each_below (i, cpu_count) {
		if (i != cpu && queued(DSQ_FAIR + i) && scx_take(DSQ_FAIR + i)) {
			count(c, FULL_STOLEN);
			return;
		}
	}
	____tenon_dispatch(ctx, cpu, prev);
}

SEC("struct_ops/full_running")
void BPF_PROG(full_running, struct task_struct *p)
{
	struct scx_cpu *here = cpu_at(bpf_get_smp_processor_id());
	__s32 cpu = scx_bpf_task_cpu(p);
	struct scx_cpu *c = cpu_at(cpu);
	enum qos_class is;

	if (!here || !c)
		return;
	is = class_in(here, p);
	switched(c, cpu, is, bpf_ktime_get_ns());
	if (is == QOS_BE) {
		____tenon_running(ctx, p);
		return;
	}
	called_for(here, is);
	if (fair_now < p->scx.dsq_vtime)
		fair_now = p->scx.dsq_vtime;
}

SEC("struct_ops/full_stopping")
void BPF_PROG(full_stopping, struct task_struct *p, bool runnable)
{
	struct scx_cpu *here = cpu_at(bpf_get_smp_processor_id());
	struct scx_cpu *c = cpu_at(scx_bpf_task_cpu(p));
	enum qos_class is;
	__u32 weight;

	if (!here || !c)
		return;
	is = class_in(here, p);
	if (is == QOS_BE) {
		____tenon_stopping(ctx, p, runnable);
		return;
	}
	called_for(here, is);
	weight = p->scx.weight;
	set_vtime(p, p->scx.dsq_vtime + (bpf_ktime_get_ns() - c->since) * 100 / (weight ? weight : 1));
}

SEC("struct_ops/full_tick")
void BPF_PROG(full_tick, struct task_struct *p)
{
	if (p->policy == SCHED_EXT)
		____tenon_tick(ctx, p);
}

SEC("struct_ops/full_update_idle")
void BPF_PROG(full_update_idle, __s32 cpu, bool idle)
{
	struct scx_cpu *c = cpu_at(cpu);

	if (!idle || !c)
		return;
	count(c, FULL_IDLES);
	switched(c, cpu, QOS_NONE, bpf_ktime_get_ns());
}

#if ABI < 619
SEC("struct_ops/full_cpu_release")
void BPF_PROG(full_cpu_release, __s32 cpu, struct scx_cpu_release_args *args)
{
	struct scx_cpu *c = cpu_at(cpu);

	if (c)
		switched(c, cpu, QOS_NORMAL, bpf_ktime_get_ns());
	____tenon_cpu_release(ctx, cpu, args);
}
#endif

SEC("struct_ops/full_enable")
void BPF_PROG(full_enable, struct task_struct *p)
{
	struct scx_cpu *here = cpu_at(bpf_get_smp_processor_id());

	if (here)
		count(here, FULL_ENABLED);
	set_vtime(p, fair_now);
	if (p->policy == SCHED_EXT)
		____tenon_enable(ctx, p);
}

SEC("struct_ops.s/full_init")
__s32 BPF_PROG(full_init)
{
	__s32 err = ____tenon_init(ctx);
	__u32 i;

	if (err)
		return err;
	each_below (i, cpu_count) {
		err = scx_bpf_create_dsq(DSQ_FAIR + i, -1);
		if (err)
			return err;
	}
	return 0;
}

struct sched_ext_ops {
	__s32 (*select_cpu)(struct task_struct *p, __s32 prev_cpu, __u64 wake_flags);
	void (*enqueue)(struct task_struct *p, __u64 enq_flags);
	void (*dispatch)(__s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*update_idle)(__s32 cpu, bool idle);
	void (*cpu_release)(__s32 cpu, struct scx_cpu_release_args *args);
	void (*enable)(struct task_struct *p);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *mask);
	__s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	__u64 flags;
	__u32 timeout_ms;
	__u64 hotplug_seq;
	char name[128];
};

SEC(".struct_ops.link")
struct sched_ext_ops full = {
	.select_cpu = (void *)full_select_cpu,
	.enqueue = (void *)full_enqueue,
	.dispatch = (void *)full_dispatch,
	.tick = (void *)full_tick,
	.running = (void *)full_running,
	.stopping = (void *)full_stopping,
	.update_idle = (void *)full_update_idle,
#if ABI < 619
	.cpu_release = (void *)full_cpu_release,
#endif
	.enable = (void *)full_enable,
	.set_cpumask = (void *)tenon_set_cpumask,
	.init = (void *)full_init,
	.exit = (void *)tenon_exit,
	.flags = SCX_OPS_KEEP_BUILTIN_IDLE | SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING,
	.timeout_ms = 30000,
	.name = "tenon_full",
};
