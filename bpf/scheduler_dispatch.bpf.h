/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.dispatch: a CPU asks for BE. If scheduler.h allows it,
 * the CPU takes a task out of a queue. Part of scheduler.bpf.c.
 */

/* refuse records why this CPU does not run BE, until it runs BE or leaves idle. */
static __always_inline void refuse(struct scx_cpu *c, enum qos_verdict v, __u64 now)
{
	if (c->refused_at)
		c->refused_ns[c->refused & (QOS_VERDICTS - 1)] += now - c->refused_at;
	c->refused = v;
	c->refused_at = now;
}

/* take moves the first task of a queue to this CPU's own queue, and records which task that probably is. */
static __noinline bool take(struct scx_cpu *c, __u64 dsq)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u32 pid = 0, tid = 0;

	if (!queued(dsq))
		return false;
	bpf_iter_scx_dsq_new(&it, dsq, 0);
	p = bpf_iter_scx_dsq_next(&it);
	if (p) {
		pid = p->tgid;
		tid = p->pid;
	}
	bpf_iter_scx_dsq_destroy(&it);
	if (!scx_take(dsq))
		return false;
	c->taken_pid = pid;
	c->taken_tid = tid;
	return true;
}

/* steal takes a task that waits for long in another shard, near shards first. */
static __noinline bool steal(struct scx_cpu *c, __u32 own, __u64 now)
{
	__u32 i;

	each_below (i, SCX_SHARDS - 1) {
		__u32 other;
		struct scx_shard *s;

		if (i + 1 >= shard_count)
			break;
		other = near[(own & (SCX_SHARDS - 1)) * SCX_SHARDS + (i & (SCX_SHARDS - 1))] & (SCX_SHARDS - 1);
		s = bpf_map_lookup_elem(&shards, &other);
		if (!s)
			break;
		if (qos_may_steal(&s->shard.queue, queued(DSQ_SHARD + other), now) && take(c, DSQ_SHARD + other))
			return true;
		if (qos_may_steal(&s->shard.urgent, queued(DSQ_URGENT + other), now) && take(c, DSQ_URGENT + other))
			return true;
	}
	return false;
}

/* first returns the key of the first task of a queue in vtime order. */
static __noinline __u64 first(__u64 dsq)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u64 key = QOS_NOBODY;

	if (!queued(dsq))
		return key;
	bpf_iter_scx_dsq_new(&it, dsq, 0);
	p = bpf_iter_scx_dsq_next(&it);
	if (p)
		key = p->scx.dsq_vtime;
	bpf_iter_scx_dsq_destroy(&it);
	return key;
}

SEC("struct_ops/tenon_dispatch")
void BPF_PROG(tenon_dispatch, __s32 cpu, struct task_struct *prev)
{
	const volatile struct scx_place *place = place_of(cpu);
	struct scx_shard *s = shard_of(place);
	struct qos_core *core = core_of(place);
	struct scx_cpu *c = cpu_at(cpu);
	struct qos_asks a = {};
	enum qos_verdict v;
	bool found, own;

	if (!s || !core || !c || !place->known)
		return;
	a.now = bpf_ktime_get_ns();
	a.thread = place->thread;
	a.runs_be = prev && prev->scx.flags & SCX_TASK_QUEUED;
	a.fair = others_wait();
	if (!a.fair)
		hold_ends(c, s, core, cpu, a.thread, a.now);
	a.lent = c->lent;
	if (s->params.headroom && (!a.runs_be || a.lent)) {
		a.alone = alone(cpu, true);
		a.idle_cores = a.alone ? idle_cores(place->shard) : 0;
	}
	v = qos_may_run(&s->params, core, &s->shard, &a);
	own = v == QOS_REFUSE_HEADROOM && ((a.runs_be && prev && !elsewhere(prev, cpu)) || bound(cpu));
	if (own) {
		a.bound = true;
		v = qos_may_run(&s->params, core, &s->shard, &a);
	}
	c->lent = own;
	c->verdicts[v & (QOS_VERDICTS - 1)]++;
	if (qos_refused(v)) {
		refuse(c, v, a.now);
		if (v == QOS_REFUSE_HOLD)
			look_again(cpu, qos_read_time(&core->hold_until), a.now);
		return;
	}
	found = !own && take(c, DSQ_URGENT + place->shard);
	if (!found) {
		__u64 mine = first(DSQ_CPU + cpu);
		/* Without another candidate there is nothing to compare. */
		bool compare = !own && (a.runs_be || mine != QOS_NOBODY);
		__u64 ours = compare ? first(DSQ_SHARD + place->shard) : QOS_NOBODY;
		__u64 key = a.runs_be ? key_of(s, place->shard, prev, a.now) : QOS_NOBODY;
		enum qos_turn turn = qos_turn(key, mine, ours);

		if (turn == QOS_TURN_PREVIOUS && go_on(s, prev, v))
			return;
		if (turn == QOS_TURN_CPU || own)
			found = take(c, DSQ_CPU + cpu);
		/* Also if the first task of a queue may not run here, or another CPU was faster. */
		if (!own)
			found = found || take(c, DSQ_SHARD + place->shard) || take(c, DSQ_CPU + cpu) ||
				steal(c, place->shard, a.now);
	}
	if (found) {
		c->taken_at = a.now;
		return;
	}
	if (a.runs_be && go_on(s, prev, v))
		return;
	if (c->refused_at) /* idle for want of work from now on */
		refuse(c, QOS_RUN, a.now);
}
