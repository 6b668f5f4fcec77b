/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Where BE goes: which idle CPU is woken for a task, and what running costs.
 * Part of scheduler.bpf.c.
 */

/* alone: all other threads of the core are idle. */
static __always_inline bool alone(const struct scx_place *place)
{
	const volatile struct scx_siblings *sib = &siblings[place->core & (SCX_CPUS - 1)];
	__u32 t;

	for (t = 0; t < QOS_THREADS; t++) {
		struct scx_cpu *c;

		if (t == place->thread || !(sib->threads & 1u << t))
			continue;
		c = cpu_at(sib->cpu[t]);
		if (c && c->class != QOS_NONE)
			return false;
	}
	return true;
}

/* idle_cores counts the whole idle cores of a shard. */
static __noinline __u32 idle_cores(__u32 shard)
{
	const volatile struct scx_range *r = &ranges[shard & (SCX_SHARDS - 1)];
	__u32 n = 0, i;

	each_below (i, r->cpus) {
		const struct scx_place *place = place_of(shard_cpus[(r->first_cpu + i) & (SCX_CPUS - 1)]);
		struct scx_cpu *c = cpu_at(shard_cpus[(r->first_cpu + i) & (SCX_CPUS - 1)]);

		if (!place->thread && c && c->class == QOS_NONE && alone(place))
			n++;
	}
	return n;
}

/* legal: may an idle CPU run BE? asks says what of it is known. */
static __always_inline enum qos_verdict legal(const struct scx_place *place, struct scx_shard *s, __u64 now,
					      __u32 whole, struct qos_asks *a)
{
	struct qos_core *core = core_of(place);

	if (!core)
		return QOS_REFUSE_SMT;
	a->now = now;
	a->thread = place->thread;
	a->alone = alone(place);
	a->idle_cores = whole;
	return qos_legal(&s->params, core, &s->shard, a);
}

/*
 * place_task finds the best idle CPU for a task near a CPU, and claims it: -1
 * if there is none. An idle CPU that is expelled and does not know is sent to
 * find out: it will be woken when the reason ends.
 */
static __noinline __s32 place_task(struct task_struct *p, __s32 prev)
{
	const struct scx_place *home = place_of(prev);
	const volatile struct scx_range *r = &ranges[home->shard & (SCX_SHARDS - 1)];
	struct scx_shard *s = shard_of(home);
	__u64 now = bpf_ktime_get_ns();
	const struct cpumask *idle;
	__s32 best = -1, refused = -1;
	__u32 rank = 0, whole, i;

	if (!s)
		return -1;
	whole = s->params.headroom ? idle_cores(home->shard) : ~0u;
	idle = scx_bpf_get_idle_cpumask();
	each_below (i, r->cpus) {
		__s32 cpu = shard_cpus[(r->first_cpu + i) & (SCX_CPUS - 1)];
		const struct scx_place *place = place_of(cpu);
		struct qos_core *core = core_of(place);
		struct qos_asks a = {};
		enum qos_verdict v;
		__u32 is;

		if (!core || !bpf_cpumask_test_cpu(cpu, idle) || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
			continue;
		v = legal(place, s, now, whole, &a);
		is = qos_rank(v, core, &a, cpu == prev);
		if (is > rank) {
			rank = is;
			best = cpu;
		} else if (qos_refused(v) && !(qos_read(&core->expelled) & qos_bit(place->thread))) {
			refused = cpu;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	if (best >= 0 && scx_bpf_test_and_clear_cpu_idle(best))
		return best;
	if (best < 0 && refused >= 0)
		scx_bpf_kick_cpu(refused, SCX_KICK_IDLE);
	return -1;
}

/* place_here is place_task for a task that waits for one CPU. */
static __noinline __s32 place_here(__s32 cpu)
{
	return scx_bpf_test_and_clear_cpu_idle(cpu) ? cpu : -1;
}

/* others_wait: a fair task could run on this CPU. Only a deadline server lets BE ask then. */
static __always_inline bool others_wait(void)
{
	struct task_struct *p = bpf_get_current_task_btf();
	struct rq *rq = p->se.cfs_rq->rq;

	return bpf_core_field_exists(rq->cfs.h_nr_runnable) && rq->cfs.h_nr_runnable;
}

/* account_wait ends a task's wait. */
static __always_inline void account_wait(struct scx_task *t, __u64 now)
{
	__u32 slot = t->slot;
	struct scx_pod *stats = bpf_map_lookup_elem(&pod_stats, &slot);

	if (stats && t->waiting)
		__sync_fetch_and_add(&stats->wait_ns, now - t->waiting);
	t->waiting = 0;
}

/* settle accounts for what a task ran since it was last asked for. */
static __always_inline void settle(struct scx_task *t, struct task_struct *p, __u64 now)
{
	struct qos_pod *pod = pod_at(t->slot);
	__u32 slot = t->slot, weight;
	struct scx_pod *stats = bpf_map_lookup_elem(&pod_stats, &slot);
	__u64 ran = now - t->ran_from, *vtime;

	if (!pod || !stats || !t->ran_from)
		return;
	__sync_fetch_and_add(&stats->run_ns, ran);
	qos_pod_settle(pod, t->granted, ran);
	weight = qos_weight(pod->weight, p->scx.weight);
	vtime = vtime_of(t->shard, slot);
	if (vtime && t->route != QOS_TO_CPU)
		qos_charge(vtime, ran, weight);
	qos_charge(&t->vtime, ran, weight);
	t->ran_from = now;
	t->granted = 0;
}

/* key_of is where the task that had the CPU would wait if it had to. */
static __always_inline __u64 key_of(struct scx_shard *s, struct task_struct *p, __u64 now)
{
	struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
	__u64 *vtime;

	if (!t)
		return QOS_NOBODY;
	settle(t, p, now);
	vtime = t->route == QOS_TO_CPU ? &t->vtime : vtime_of(t->shard, t->slot);
	return vtime ? qos_key(&s->params, &s->shard.queue, vtime) : QOS_NOBODY;
}

/* go_on lets the task that had the CPU keep it: false if its pod's quota is used up. After key_of. */
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
