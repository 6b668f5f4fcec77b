/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The hook at sched_switch records the class that runs on each CPU. It
 * costs time at each switch of the node, so it takes no lock and
 * allocates nothing. A task whose class it cannot determine is NORMAL: LS
 * then loses protection, but BE is not stuck. Part of scheduler.bpf.c.
 */

/* stray reports a thread of a BE group that is not in sched_ext, by an event. */
static __noinline void stray(struct scx_cpu *c, struct task_struct *p, __u64 cgroup, __u32 cpu)
{
	__u64 now = bpf_ktime_get_ns();
	struct scx_event *e;

	c->counts[SCX_STRAYS]++;
	if (now - c->strayed_at < 100 * QOS_MS)
		return;
	c->strayed_at = now;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e) {
		c->counts[SCX_LOST]++;
		return;
	}
	__builtin_memset(e, 0, sizeof(*e));
	e->kind = SCX_STRAY;
	e->pid = BPF_CORE_READ(p, tgid);
	e->tid = BPF_CORE_READ(p, pid);
	e->policy = BPF_CORE_READ(p, policy);
	e->cpu = cpu;
	e->at_ns = now;
	e->cgroup = cgroup;
	bpf_ringbuf_submit(e, 0);
}

/* classify returns the class of the task that runs from now on. */
static __always_inline enum qos_class classify(struct scx_cpu *c, struct task_struct *p)
{
	struct scx_known *k;

	if (!p->pid)
		return QOS_NONE;
	if (p->flags & PF_KTHREAD)
		return QOS_NORMAL;
	if (p->policy == SCHED_EXT)
		return QOS_BE;
	k = group_of(c, p);
	if (k->class != QOS_BE)
		return k->class;
	c->stray = 1;
	if (!(p->flags & PF_EXITING))
		stray(c, p, k->cgroup, bpf_get_smp_processor_id());
	return QOS_NORMAL;
}

/* bucket returns n, where ns is below 2^(n + 8). It has no branches, because the verifier would follow each one. */
static __always_inline __u32 bucket(__u64 ns)
{
	__u64 v = ns >> 8;
	__u32 n = 0, step;

	v = v >> 32 ? 0xffffffff : v;
	step = (v > 0xffff) << 4, v >>= step, n += step;
	step = (v > 0xff) << 3, v >>= step, n += step;
	step = (v > 0xf) << 2, v >>= step, n += step;
	step = (v > 0x3) << 1, v >>= step, n += step;
	n += (v > 0x1) + (v > 0);
	return n;
}

/* delayed records the time for which BE stayed after the request to leave. */
static __noinline void delayed(struct scx_cpu *c, __u64 ns)
{
	__u32 n = bucket(ns);

	c->delays[n < SCX_DELAYS ? n : SCX_DELAYS - 1]++;
}

/* expelled records that BE on the siblings must leave. */
static __noinline void expelled(__u32 core, __u32 threads, __u64 now)
{
	__u32 t;

	for (t = 0; t < QOS_THREADS && threads >> t; t++) {
		struct scx_cpu *c;

		if (!(threads & 1u << t))
			continue;
		c = cpu_at(siblings[core & (SCX_CPUS - 1)].cpu[t]);
		if (c && !c->expelled_at)
			c->expelled_at = now;
	}
}

/* left_idle ends the measurement of the time for which this CPU refused BE. */
static __always_inline void left_idle(struct scx_cpu *c, __u64 now)
{
	c->refused_ns[c->refused & (QOS_VERDICTS - 1)] += now - c->refused_at;
	c->refused_at = 0;
}

/* hurry marks a task that was preempted inside the kernel, where it may hold a lock that LS wants. */
static __noinline void hurry(struct task_struct *p, struct scx_shard *s)
{
	struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

	if (t && !t->hurried) {
		t->hurried = true;
		__sync_fetch_and_add(&s->hurried, 1);
	}
}

SEC("tp_btf/sched_switch")
int BPF_PROG(tenon_switched, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u32 cpu = bpf_get_smp_processor_id();
	const volatile struct scx_place *place = place_of(cpu);
	struct qos_core *core = core_of(place);
	struct scx_cpu *c = cpu_at(cpu);
	enum qos_class was, is;
	__u64 now, ns;
	bool was_lsx;

	if (!c || !core || !place->known)
		return 0;
	now = next->se.cfs_rq->rq->clock;
	was = c->class;
	ns = now - c->since;
	if (c->since) {
		if (c->stray)
			c->strayed_ns += ns;
		else
			c->class_ns[was & (QOS_CLASSES - 1)] += ns;
	}
	c->since = now;
	c->stray = 0;
	c->counts[SCX_SWITCHES]++;
	is = classify(c, next);
	c->class = is;
	if (c->refused_at && is != QOS_NONE)
		left_idle(c, bpf_ktime_get_ns());
	was_lsx = qos_read(&core->ls) & qos_bit(place->thread);
	if (was_lsx != (is == QOS_LSX)) {
		struct qos_kicks k;

		now = bpf_ktime_get_ns();
		k = qos_switch(&params, core, place->thread, is, now);
		if (was_lsx && params.hold_ns) {
			/* Refused CPUs wait for the end of the hold by themselves: see look_again. */
			k.wake |= qos_read(&core->expelled);
			if (c->armed || is == QOS_NONE) { /* or is told when it is over: see hold_ends */
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
#if ABI >= 619
	if (c->taken_at && is != QOS_BE && is != QOS_NONE) {
		/* ops.dispatch moved a task here just before this CPU was lost to another class. */
		c->taken_at = 0;
		count(c, SCX_REENQUEUED);
		scx_bpf_reenqueue_local___v2();
	}
#endif
	if (was == QOS_BE && is != QOS_BE) {
		struct scx_shard *s;

		if (is != QOS_NONE)
			count(c, SCX_PREEMPTED);
		if (preempt) { /* also when this program sent it away */
			s = shard_of(place);
			if (s)
				hurry(prev, s);
		}
	}
	return 0;
}
