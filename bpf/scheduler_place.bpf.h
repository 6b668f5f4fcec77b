/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Placement of BE: the idle CPU that is woken for a task,
 * and the accounting of runs. Part of scheduler.bpf.c.
 */

/* alone reports whether all other threads of a CPU's core are idle, or, if asked for that, lent. */
__noinline int alone(__u32 cpu, __u32 or_lent)
{
	const volatile struct scx_place *place = place_of(cpu);
	const volatile struct scx_siblings *sib = &siblings[place->core & (SCX_CPUS - 1)];
	__u32 t;

	for (t = 0; t < QOS_THREADS; t++) {
		struct scx_cpu *c;

		if (t == place->thread || !(sib->threads & 1u << t))
			continue;
		c = cpu_at(sib->cpu[t]);
		if (c && c->class != QOS_NONE && !(or_lent && c->lent && c->class == QOS_BE))
			return 0;
	}
	return 1;
}

/* idle_cores counts the whole idle cores of a shard. */
__noinline int idle_cores(__u32 shard)
{
	const volatile struct scx_range *r = &ranges[shard & (SCX_SHARDS - 1)];
	__u32 n = 0, i;

	each_below (i, r->cpus) {
		__u32 cpu = shard_cpus[(r->first_cpu + i) & (SCX_CPUS - 1)];
		struct scx_cpu *c = cpu_at(cpu);

		if (!place_of(cpu)->thread && c && c->class == QOS_NONE && alone(cpu, false))
			n++;
	}
	return n;
}

/* rank returns, for an idle CPU and a task, qos_rank in bits 0 to 7 and qos_legal's verdict above. */
__noinline int rank(__u32 cpu, __u32 previous, __u32 whole, __u32 is_bound)
{
	const volatile struct scx_place *place = place_of(cpu);
	struct scx_shard *s = shard_of(place);
	struct qos_core *core = core_of(place);
	struct qos_asks a = {
		.now = bpf_ktime_get_ns(),
		.thread = place->thread,
		.idle_cores = whole,
		.alone = alone(cpu, true),
		.bound = is_bound,
	};
	enum qos_verdict v;

	if (!core || !s)
		return QOS_REFUSE_SMT << 8;
	v = qos_legal(&s->params, core, &s->shard, &a);
	return qos_rank(v, core, &a, previous == cpu) | v << 8;
}

/* ask wakes an idle CPU on which BE is forbidden, so that it records the refusal. */
__noinline int ask(__u32 cpu)
{
	const volatile struct scx_place *place = place_of(cpu);
	struct qos_core *core = core_of(place);

	if (core && !(qos_read(&core->expelled) & qos_bit(place->thread)))
		scx_kick(cpu, SCX_KICK_IDLE);
	return 0;
}

/*
 * place_task finds and claims the best idle CPU for a task near a CPU; -1:
 * there is none. If BE is refused on an idle CPU that has not recorded this,
 * place_task wakes that CPU, so that it is woken again when the reason ends.
 * is_bound: the task is known to have no other core in the shard.
 */
static __noinline __s32 place_task(struct task_struct *p, __s32 prev, bool is_bound)
{
	const volatile struct scx_place *home = place_of(prev);
	const volatile struct scx_range *r = &ranges[home->shard & (SCX_SHARDS - 1)];
	struct scx_shard *s = shard_of(home);
	const struct cpumask *idle;
	__s32 best = -1, refused = -1;
	__u32 most = 0, whole, i;

	if (!s)
		return -1;
	idle = scx_bpf_get_idle_cpumask();
	if (!bpf_cpumask_intersects(idle, p->cpus_ptr)) {
		scx_bpf_put_idle_cpumask(idle);
		return -1;
	}
	whole = s->params.headroom ? idle_cores(home->shard) : ~0u;
	each_below (i, r->cpus) {
		__s32 cpu = shard_cpus[(r->first_cpu + i) & (SCX_CPUS - 1)];
		__u32 is;

		if (!bpf_cpumask_test_cpu(cpu, idle) || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		is = rank(cpu, prev, whole, is_bound);
		if ((is & 0xff) > most) {
			most = is & 0xff;
			best = cpu;
		} else if (qos_refused(is >> 8)) {
			refused = cpu;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	if (best >= 0)
		return scx_bpf_test_and_clear_cpu_idle(best) ? best : -1;
	if (refused >= 0)
		ask(refused);
	return -1;
}

/* place_here does the same as place_task for a task that waits for one CPU. */
static __noinline __s32 place_here(__s32 cpu)
{
	return scx_bpf_test_and_clear_cpu_idle(cpu) ? cpu : -1;
}

/* others_wait reports whether a fair task could run on this CPU. Then only a deadline server dispatches BE. */
static __always_inline bool others_wait(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct rq *rq = p->se.cfs_rq->rq;

	return bpf_core_field_exists(rq->cfs.h_nr_runnable) && rq->cfs.h_nr_runnable;
}

/* account_wait ends the wait of a task. */
static __always_inline void account_wait(struct scx_task *t, __u64 now)
{
	__u32 slot = t->slot;
	struct scx_pod *stats = bpf_map_lookup_elem(&pod_stats, &slot);

	if (stats && t->waiting)
		__sync_fetch_and_add(&stats->wait_ns, now - t->waiting);
	t->waiting = 0;
}

/* settle accounts the run time of a task since the last call. */
static __always_inline void settle(struct scx_task *t, struct task_struct *p, __u64 now)
{
	struct qos_pod *pod = pod_at(t->slot);
	__u32 slot = t->slot, weight;
	struct scx_pod *stats = bpf_map_lookup_elem(&pod_stats, &slot);
	struct qos_queue *q = waited_in(t);
	__u64 ran = now - t->ran_from, *vtime;

	if (!pod || !stats || !t->ran_from)
		return;
	__sync_fetch_and_add(&stats->run_ns, ran);
	qos_pod_settle(pod, t->granted, ran);
	if (q && !t->relief && !t->refused)
		qos_fed(q, ran, now);
	weight = qos_weight(pod->weight, p->scx.weight);
	vtime = vtime_of(t->shard, slot);
	if (vtime && t->route != QOS_TO_CPU)
		qos_charge(vtime, ran, weight);
	qos_charge(&t->vtime, ran, weight);
	t->ran_from = now;
	t->granted = 0;
}

/*
 * key_of returns the key that the task on the CPU would have in this
 * queue. A task from another shard has a key in that shard's time, which
 * cannot be compared here; then the tasks that wait here go first.
 */
static __always_inline __u64 key_of(struct scx_shard *s, __u32 shard, struct task_struct *p, __u64 now)
{
	struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
	__u64 *vtime;

	if (!t)
		return QOS_NOBODY;
	settle(t, p, now);
	if (t->route == QOS_TO_CPU) {
		struct qos_queue *q = queue_of(t->cpu);
		__u64 key = qos_key(&s->params, &s->shard.queue, &t->vtime);

		if (q)
			qos_continued(q, key);
		return key;
	}
	if (t->shard != shard)
		return QOS_NOBODY;
	vtime = vtime_of(t->shard, t->slot);
	return vtime ? qos_key(&s->params, &s->shard.queue, vtime) : QOS_NOBODY;
}

/* go_on lets the task on the CPU continue. It returns false if its pod's quota is used up. Call key_of before. */
static __always_inline bool go_on(struct scx_shard *s, struct task_struct *p, enum qos_verdict v)
{
	struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
	struct qos_pod *pod;
	__u64 want;

	if (!t)
		return false;
	pod = pod_at(t->slot);
	if (!pod)
		return false;
	want = qos_slice(&s->params, qos_weight(pod->weight, p->scx.weight), v, t->urgent);
	if (!t->urgent && v != QOS_RUN_RELIEF) {
		want = t->granted = qos_pod_take(pod, want);
		if (!want)
			return false;
	}
	scx_set_slice(p, want);
	return true;
}
