/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tasks that may not run everywhere in the shard wait in the queue of a CPU. The
 * reaper moves them to the queues of idle CPUs, and, if they are stuck, to that
 * of a CPU that runs BE. ops.dispatch and ops.enqueue do not look for other CPUs
 * and their tasks, because they run while LS enters or leaves a CPU. Part of
 * scheduler.bpf.c.
 */

#define SPREAD_MOVES 8	 /* tasks that a pass moves, at about 2 us each; it may run on a CPU of LS */
#define SPREAD_LOOKS 8	 /* tasks that a pass examines in one queue */
#define SPREAD_MISSES 2	 /* queues that a pass examines in vain; most tasks have the same CPUs, so more would be, too */
#define SPREAD_DEEP 16	 /* passes until one that examines more tasks of a queue, which may have other CPUs */
#define SPREAD_DEPTH 64	 /* the number of these tasks, of which it finds no CPU for at most: */
#define SPREAD_TRIES 4

/* The state that the passes over the cores of a shard share. */
struct sweep {
	struct qos_pass pass;
	struct qos_relief_pick pick;
	__u32 waiting; /* in the shard's queue, and in the urgent one */
	__u32 urgent;
	__u32 from;    /* enum qos_route: the queue that starves */
	__u32 pinned;  /* tasks in the queues of CPUs */
	__u32 spare;   /* idle CPUs that were not woken */
	__u32 stuck;   /* queues of CPUs that are stuck */
	bool repair;
	bool relief;
};

/* elsewhere reports whether a task may run on another core of the shard. */
static __noinline bool elsewhere(struct task_struct *p, __u32 cpu)
{
	const volatile struct scx_range *r = &ranges[place_of(cpu)->shard & (SCX_SHARDS - 1)];
	bool found = false;
	__u32 i;

	if (p->nr_cpus_allowed == 1 || immovable(p))
		return false;
	each_below (i, r->cpus) {
		__u32 other = shard_cpus[(r->first_cpu + i) & (SCX_CPUS - 1)];

		if (place_of(other)->core != place_of(cpu)->core && bpf_cpumask_test_cpu(other, p->cpus_ptr)) {
			found = true;
			break;
		}
	}
	return found;
}

/* bound reports whether the first task in the queue of a CPU may run on no other core of the shard. */
__noinline int bound(__u32 cpu)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	bool is = false;

	if (!queued(DSQ_CPU + cpu))
		return 0;
	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, DSQ_CPU + cpu, 0);
	p = bpf_iter_scx_dsq_next(&it);
	if (p)
		is = !elsewhere(p, cpu);
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return is;
}

/* company finds the CPU with the fewest waiting tasks that runs BE and may run a task; -1: there is none. */
static __noinline __s32 company(struct task_struct *p, __u32 cpu)
{
	const volatile struct scx_range *r = &ranges[place_of(cpu)->shard & (SCX_SHARDS - 1)];
	__u32 least = ~0u, i;
	__s32 best = -1;

	each_below (i, r->cpus) {
		__u32 other = shard_cpus[(r->first_cpu + i) & (SCX_CPUS - 1)], n;
		struct scx_cpu *c = cpu_at(other);

		if (other == cpu || !c || c->class != QOS_BE || !bpf_cpumask_test_cpu(other, p->cpus_ptr))
			continue;
		n = queued(DSQ_CPU + other);
		if (n < least) {
			least = n;
			best = other;
		}
	}
	return best;
}

/*
 * move_on moves up to most tasks from the queue of a CPU to those of idle CPUs,
 * or, if it is stuck, one to that of a CPU that runs BE. It returns their number.
 */
__noinline int move_on(__u32 cpu, __u32 most, __u32 stuck, __u32 deep, __u64 now)
{
	struct scx_cpu *here = cpu_at(bpf_get_smp_processor_id());
	struct scx_shard *s = shard_of(place_of(cpu));
	struct bpf_iter_scx_dsq it;
	__u32 moved = 0, failed = 0, looked;

	if (!here || !s)
		return 0;
	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, DSQ_CPU + cpu, 0);
	each_below (looked, deep ? SPREAD_DEPTH : SPREAD_LOOKS) {
		struct task_struct *p;
		struct scx_task *t;
		struct qos_queue *q;
		__s32 to, idle;

		if (moved >= most && !stuck)
			break;
		p = bpf_iter_scx_dsq_next(&it);
		if (!p)
			break;
		if (p->nr_cpus_allowed == 1 || immovable(p))
			continue;
		to = idle = moved < most ? place_task(p, cpu, s->params.headroom && !elsewhere(p, cpu)) : -1;
		if (idle < 0 && stuck) {
			to = company(p, cpu);
			stuck = to < 0;
		}
		if (to < 0) {
			if (!deep || ++failed >= SPREAD_TRIES)
				break;
			continue;
		}
		t = bpf_task_storage_get(&tasks, p, 0, 0);
		q = queue_of(to);
		if (!t || !q)
			break;
		if ((__u32)to != cpu) {
			qos_queued(q, queued(DSQ_CPU + to), now);
			house(s, q, t, to);
			scx_move_set_vtime(&it, t->key);
			scx_move_vtime(&it, p, DSQ_CPU + to, 0);
		}
		if (idle >= 0)
			wake(here, idle);
		moved++;
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	s->moved += moved;
	return moved;
}

/*
 * spread looks for other CPUs for the tasks in the queues of CPUs. It goes
 * around the queues of the shard, and continues in the next pass where it ended.
 */
__noinline int spread(struct sweep *w, __u32 shard)
{
	const volatile struct scx_range *r = &ranges[shard & (SCX_SHARDS - 1)];
	struct scx_shard *s = shard_at(shard);
	__u32 misses = 0, moves = 0, from, deep, i;

	if (!w || !s)
		return 0;
	deep = !(s->passes % SPREAD_DEEP);
	from = s->spread_from;
	each_below (i, r->cpus) {
		__u32 cpu = shard_cpus[(r->first_cpu + (from + i) % r->cpus) & (SCX_CPUS - 1)], most, n;
		struct qos_look *look = bpf_map_lookup_elem(&looks, &cpu);

		if (misses >= SPREAD_MISSES || moves >= SPREAD_MOVES)
			break;
		s->spread_from = (from + i + 1) % r->cpus;
		if (!look)
			continue;
		most = look->spread < w->spare ? look->spread : w->spare;
		if (most > SPREAD_MOVES - moves)
			most = SPREAD_MOVES - moves;
		if (!most && !look->stuck)
			continue;
		n = move_on(cpu, most, look->stuck, deep, w->pass.now);
		w->spare -= n < w->spare ? n : w->spare;
		moves += n;
		misses += !n;
	}
	return 0;
}
