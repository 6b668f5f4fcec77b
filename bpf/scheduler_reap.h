/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
#ifndef TENON_SCHEDULER_REAP_H
#define TENON_SCHEDULER_REAP_H

/*
 * The reaper: a timer for each shard that enforces the cap, wakes idle
 * CPUs while tasks wait, gives relief to starving queues, and repairs
 * the core words. Part of scheduler.h. One pass over a shard is
 *
 *	shard.limit = qos_cap_limit(...)
 *	pass = qos_pass_begin(...)
 *	each core: each thread: qos_repair; then qos_reap_core, carry out kicks
 *	each CPU's queue: qos_spread, qos_stuck; move tasks to the queues of other CPUs
 *	qos_relief_weigh for the queues, qos_relief_grant, kick the CPU idle
 *	one shard's reaper: each pod: qos_pod_refill, unpark
 *	again after qos_reap_ns
 */

/* The remaining work of one pass. */
struct qos_pass {
	__u64 now;
	__u32 waiting;	  /* tasks in the shard's queues (including urgent) for which no CPU was woken yet */
	__u32 room;	  /* number of CPUs that the cap still allows */
	__u32 excess;	  /* number of CPUs that run BE above the cap */
	__u32 idle_cores; /* whole idle cores of the shard */
};

static __always_inline struct qos_pass qos_pass_begin(const struct qos_shard *s, __u32 waiting, __u32 idle_cores,
						      __u64 now)
{
	__u32 running = qos_read(&s->running), limit = qos_read(&s->limit);
	struct qos_pass pass = {
		.now = now,
		.waiting = waiting,
		.room = limit > running ? limit - running : 0,
		.excess = running > limit ? running - limit : 0,
		.idle_cores = idle_cores,
	};

	return pass;
}

/* What the reaper sees of a core, as masks of threads. */
struct qos_sight {
	__u32 all;    /* the existing threads */
	__u32 idle;   /* the threads that are idle now */
	__u32 queued; /* the threads whose CPU's own queue has tasks */
	__u32 bound;  /* of these, those where the first task may run on no other core of the shard */
	__u32 lent;   /* the threads that run such a task on a core that is kept for LS */
};

/*
 * qos_reap_core decides for one core which idle threads to wake, and
 * which BE threads to stop. While tasks wait, it wakes any idle thread
 * that may run BE, expelled or not, so a lost wake-up lasts at most one
 * pass. qos_reap_thread does this for one thread t, because the kernel's
 * verifier follows every path through a loop.
 */
static __always_inline void qos_reap_thread(const struct qos_params *p, const struct qos_core *c,
					    const struct qos_shard *s, struct qos_pass *pass, struct qos_kicks *k,
					    const struct qos_sight *saw, __u32 t)
{
	__u32 bit = qos_bit(t);
	struct qos_asks a = {
		.now = pass->now,
		.thread = t,
		.idle_cores = pass->idle_cores,
		.alone = ((saw->idle & ~k->wake) | saw->lent | bit) == saw->all,
		.bound = saw->bound & bit,
	};

	if (!(saw->all & bit))
		return;
	if (qos_read(&c->be) & bit) {
		/* A kick was lost, or relief is over. As ops.tick, but ticks may be 10 ms apart. */
		if (qos_be_exposed(p, c, t, pass->now) && !TENON_BROKEN(REAP_KICK)) {
			k->preempt |= bit;
		} else if (pass->excess && !qos_relief(c, pass->now) && !TENON_BROKEN(CAP)) {
			pass->excess--;
			k->preempt |= bit;
		}
		return;
	}
	if (!(saw->idle & bit) || !(saw->queued & bit || pass->waiting) || TENON_BROKEN(REAP_WAKE))
		return;
	if (!pass->room || qos_refused(qos_legal(p, c, s, &a)))
		return;
	k->wake |= bit;
	pass->room--;
	if (!(saw->queued & bit))
		pass->waiting--;
	if (a.alone)
		pass->idle_cores--;
}

static __always_inline struct qos_kicks qos_reap_core(const struct qos_params *p, const struct qos_core *c,
						      const struct qos_shard *s, struct qos_pass *pass,
						      const struct qos_sight *saw)
{
	struct qos_kicks k = {};
	__u32 t;

	for (t = 0; t < QOS_THREADS; t++)
		qos_reap_thread(p, c, s, pass, &k, saw, t);
	return k;
}

/*
 * qos_spread returns how many tasks the reaper may move from a CPU's queue to
 * idle CPUs that may run them; woken: the CPU itself was woken for one of them.
 */
static __always_inline __u32 qos_spread(__u32 waiting, bool woken)
{
	return waiting && !TENON_BROKEN(SPREAD) ? waiting - woken : 0;
}

/*
 * qos_stuck reports whether the reaper should move a task from a CPU's queue to
 * one of a CPU that runs BE: another class has this CPU for long, or the rules
 * keep BE off it. In the shard's queue, any CPU would take the task in its turn.
 */
static __always_inline bool qos_stuck(const struct qos_queue *q, __u32 waiting, bool runs_be, __u64 now)
{
	return waiting && !runs_be && now > q->served_at + QOS_STUCK_NS && !TENON_BROKEN(STUCK);
}

/* The longest starving queue, and the CPU that could serve it. */
struct qos_relief_pick {
	__u64 since;
	__u32 cpu;
	bool found;
};

/*
 * qos_relief_weigh considers a queue of waiting tasks and a CPU that
 * could serve it: the CPU's own queue, or on any CPU the shard's and the
 * urgent queue. The CPU must be idle, because relief suspends the rules
 * that keep BE off an idle CPU, not the class order; on a busy CPU it
 * would be lost. If no CPU is idle for long, qos_overdue applies.
 */
static __always_inline void qos_relief_weigh(struct qos_relief_pick *best, const struct qos_queue *q, __u32 waiting,
					     bool urgent, __u32 cpu, bool idle, __u64 now)
{
	__u64 since = q->fed_at ? q->fed_at : q->served_at;

	if (!waiting || !idle || now < since + (urgent ? QOS_URGENT_NS : QOS_STARVED_NS) || TENON_BROKEN(RELIEF))
		return;
	if (q->relieved_at > since)
		since = q->relieved_at;
	if (best->found && best->since <= since)
		return;
	best->since = since;
	best->cpu = cpu;
	best->found = true;
}

/*
 * qos_relief_due reports whether the shard's next relief is due. Call it before
 * weighing: relief is QOS_RELIEF_NS per QOS_PERIOD_NS on one core of a shard.
 */
static __always_inline bool qos_relief_due(const struct qos_shard *s, __u64 now)
{
	return now >= s->relief_at || TENON_BROKEN(RELIEF_RATE);
}

/* qos_relief_grant suspends the rules for the core of the picked CPU; q is the picked queue. */
static __always_inline void qos_relief_grant(struct qos_shard *s, struct qos_core *c, struct qos_queue *q, __u64 now)
{
	s->relief_at = now + QOS_PERIOD_NS;
	q->relieved_at = now;
	qos_write_time(&c->relief_until, now + QOS_RELIEF_NS);
}

/* The state of a CPU in the reaper's last pass. */
struct qos_look {
	__u32 switches;
	__u32 wrong;
	__u32 spread; /* tasks in the CPU's own queue that may be moved to idle CPUs: qos_spread */
	__u32 stuck;  /* or also to those that run BE: qos_stuck */
};

/*
 * qos_repair compares a thread's bits with the class of the task on
 * its CPU (scx_bpf_cpu_curr, or rq->curr). The CPU may switch
 * meanwhile. Therefore bits count as wrong only if they were also
 * wrong in the last pass and the CPU has not switched since
 * (switches: the hook's counter). Returns whether it repaired them.
 */
static __always_inline bool qos_repair(struct qos_core *c, struct qos_shard *s, struct qos_look *look, __u32 thread,
				       enum qos_class is, __u32 switches)
{
	__u32 bit = qos_bit(thread);
	bool ls = qos_read(&c->ls) & bit, be = qos_read(&c->be) & bit;

	if (TENON_BROKEN(REPAIR))
		return false;
	if (ls == (is == QOS_LSX) && be == (is == QOS_BE)) {
		look->wrong = 0;
		return false;
	}
	if (!look->wrong || look->switches != switches) {
		look->wrong = 1;
		look->switches = switches;
		return false;
	}
	look->wrong = 0;
	if (ls && is != QOS_LSX)
		qos_clear(&c->ls, bit);
	if (!ls && is == QOS_LSX)
		qos_set(&c->ls, bit);
	if (be && is != QOS_BE)
		qos_be_stop(c, s, thread);
	if (!be && is == QOS_BE && !(qos_set(&c->be, bit) & bit))
		__sync_fetch_and_add(&s->running, 1);
	return true;
}

/* qos_overdue reports whether the agent should move a task to the fair class, because it has waited since then. */
static __always_inline bool qos_overdue(__u64 since, __u64 now)
{
	return now >= since + QOS_SPILL_NS && !TENON_BROKEN(SPILL);
}

/* qos_reap_ns returns the time until the next pass; busy: BE runs or waits in the shard. */
static __always_inline __u64 qos_reap_ns(bool busy)
{
	return busy ? QOS_REAP_NS : QOS_REAP_IDLE_NS;
}

#endif
