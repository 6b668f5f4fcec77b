/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who has waited for too long, by the reaper: user space is told of tasks that
 * starve in spite of relief, and who is killed or was preempted inside the kernel
 * goes to the urgent queue. Part of scheduler.bpf.c.
 */

#define SCAN_NS QOS_SEC /* between looks for long waits */
#define EXPEDITE_PASSES 32 /* of the reaper, between looks for killed tasks */
#define SCAN_MOST 256	/* tasks of a queue that are looked at */
#define HOPELESS_NS (15 * QOS_SEC) /* a wait that no agent has ended */
#define LATE_NS (20 * QOS_SEC) /* the same, if it goes on after another class */
#define ANSWER_NS (4 * QOS_SEC)	/* what the agent may take to answer */

static __u64 hopeless_at; /* since when this is so; 0: it is not */

/* tell asks user space to take a task out of sched_ext. */
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
 * trapped looks for a task in the CPU's own queue that lost the CPU in the
 * moment when it was taken: it stays there until the other sleeps, which the
 * kernel does not say in all cases. No scan of queues finds it.
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

/* overdue tells user space of the tasks of a queue that have waited for very long, and returns the longest wait. */
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
 * expedite moves tasks of the shard's queue to the urgent one: those that were
 * preempted inside the kernel, and those that were killed, which the kernel
 * does not enqueue anew.
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

/* scan looks for long waits in the queues of a shard. */
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
