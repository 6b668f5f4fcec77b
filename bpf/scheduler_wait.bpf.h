/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Long waits, found by the reaper: it reports tasks that starve in spite
 * of relief to user space, and moves tasks that were killed or preempted
 * inside the kernel to the urgent queue. Part of scheduler.bpf.c.
 */

#define SCAN_NS QOS_SEC /* between scans for long waits */
#define EXPEDITE_PASSES 32 /* passes of the reaper between scans for killed tasks */
#define SCAN_MOST 256	/* maximum number of tasks that are scanned per queue */
#define HOPELESS_NS (15 * QOS_SEC) /* a wait for which no agent has acted */
#define LATE_NS (20 * QOS_SEC) /* the same if the task returns from another class */
#define ANSWER_NS (4 * QOS_SEC)	/* time for the agent to act */

static __u64 hopeless_at; /* time since which a wait is hopeless; 0: none is */

/* tell asks user space to demote a task. */
static __always_inline bool tell(__u32 pid, __u32 tid, __u32 cpu, bool pinned, __u64 now, __u64 wait)
{
	struct scx_event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e)
		return false;
	__builtin_memset(e, 0, sizeof(*e));
	e->kind = SCX_LONG_WAIT;
	e->pid = pid;
	e->tid = tid;
	e->policy = SCHED_EXT;
	e->cpu = cpu;
	e->pinned = pinned;
	e->at_ns = now;
	e->wait_ns = wait;
	bpf_ringbuf_submit(e, 0);
	return true;
}

/*
 * trapped looks for a task in the CPU's own queue that lost the CPU at the
 * moment when it was taken. It stays there until the other task sleeps,
 * about which the kernel does not always notify. No scan of queues finds it.
 */
__noinline int trapped(__u32 cpu, __u64 now)
{
	struct scx_shard *s = shard_of(place_of(cpu));
	struct scx_cpu *c = cpu_at(cpu);

	if (!c || !s || !c->taken_at || c->class == QOS_BE || !qos_overdue(c->taken_at, now))
		return 0;
	if (!queued(SCX_DSQ_LOCAL_ON | cpu)) {
		c->taken_at = 0;
		return 0;
	}
	s->long_waits++;
	if (tell(c->taken_pid, c->taken_tid, cpu, true, now, now - c->taken_at))
		c->taken_at = now - QOS_SPILL_NS + 2 * QOS_SEC; /* and again then */
	return 0;
}

/* overdue sends events about the tasks of a queue with a very long wait, and returns the longest wait. */
__noinline __u64 overdue(__u32 shard, __u64 dsq, __u64 now)
{
	struct scx_shard *s = shard_at(shard);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u64 oldest = 0;
	__u32 looked;

	if (!s || !queued(dsq))
		return 0;
	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, dsq, 0);
	each_below (looked, SCAN_MOST) {
		struct scx_task *t;
		__u64 unserved;

		p = bpf_iter_scx_dsq_next(&it);
		if (!p)
			break;
		t = bpf_task_storage_get(&tasks, p, 0, 0);
		if (!t || !t->waiting || t->waiting > now || !t->unserved || t->unserved > now)
			continue;
		unserved = now - t->unserved;
		if (unserved > oldest)
			oldest = unserved;
		if (!qos_overdue(t->unserved, now))
			continue;
		s->long_waits++;
		tell(p->tgid, p->pid, scx_bpf_task_cpu(p), t->route == QOS_TO_CPU, now, unserved);
		if (now - t->waiting > HOPELESS_NS || (unserved > LATE_NS && now - t->waiting > ANSWER_NS))
			hopeless_at = now;
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return oldest;
}

/*
 * expedite moves tasks from the shard's queue to the urgent
 * one: tasks that were preempted inside the kernel, and killed
 * tasks, because the kernel does not enqueue those again.
 */
__noinline int expedite(__u32 shard, __u64 now)
{
	struct scx_shard *s = shard_at(shard);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u32 looked;

	if (!s)
		return 0;
	s->hurried = 0;
	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, DSQ_SHARD + shard, 0);
	each_below (looked, SCAN_MOST) {
		struct scx_task *t;

		p = bpf_iter_scx_dsq_next(&it);
		if (!p)
			break;
		t = bpf_task_storage_get(&tasks, p, 0, 0);
		if (!t || !(t->hurried || p->signal->flags & SIGNAL_GROUP_EXIT))
			continue;
		qos_queued(&s->shard.urgent, queued(DSQ_URGENT + shard), now);
		t->urgent = true;
		t->route = QOS_TO_URGENT;
		scx_move(&it, p, DSQ_URGENT + shard, 0);
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return 0;
}

/* scan searches the queues of a shard for long waits. */
__noinline int scan(__u32 shard, __u64 now)
{
	const volatile struct scx_range *r = &ranges[shard & (SCX_SHARDS - 1)];
	struct scx_shard *s = shard_at(shard);
	__u64 oldest, ns;
	__u32 i;

	if (!s)
		return 0;
	s->scan_at = now + SCAN_NS;
	oldest = overdue(shard, DSQ_SHARD + shard, now);
	ns = overdue(shard, DSQ_URGENT + shard, now);
	oldest = ns > oldest ? ns : oldest;
	each_below (i, r->cpus) {
		__u32 cpu = shard_cpus[(r->first_cpu + i) & (SCX_CPUS - 1)];

		trapped(cpu, now);
		ns = overdue(shard, DSQ_CPU + cpu, now);
		oldest = ns > oldest ? ns : oldest;
	}
	each_below (i, shard ? 0 : SCX_SLOTS) { /* the parking queues belong to no shard */
		ns = overdue(shard, DSQ_PARK + i, now);
		oldest = ns > oldest ? ns : oldest;
	}
	s->oldest_ns = oldest;
	return 0;
}
