/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
#ifndef TENON_SCHEDULER_SHARE_H
#define TENON_SCHEDULER_SHARE_H

/*
 * The order of BE pods and the length of their runs: queues, weights,
 * quotas, and the node's cap. They replace cgroup weights and quotas,
 * which have no effect on ext tasks. Part of scheduler.h.
 */

/* One pod. */
struct qos_pod {
	__s64 budget_ns; /* remaining budget; below 0: debt */
	__u64 quota_ns;	 /* budget per QOS_PERIOD_NS; 0: no limit */
	__u64 refill_at;
	__u32 weight; /* as cgroup's cpu.weight: 1 to 10000, default 100 */
	__u32 pad;
};

/* The queue into which ops.enqueue puts a task. */
enum qos_route {
	QOS_TO_SHARD,  /* the shard's queue, at qos_key of the pod's vtime there */
	QOS_TO_CPU,    /* the queue of a CPU that it may use, at qos_key of its own vtime */
	QOS_TO_URGENT, /* the shard's urgent queue; if restricted, its CPU's queue at key 0 */
	QOS_TO_PARK,   /* the pod's parking queue, ordered by the begin of the wait, until the reaper moves it back */
};

static __always_inline bool qos_pod_over(const struct qos_pod *pod)
{
	return pod->quota_ns && *(const volatile __s64 *)&pod->budget_ns <= 0;
}

/*
 * qos_route decides for ops.enqueue. urgent: the task exits, or was preempted
 * inside the kernel and may hold a lock that LS wants. restricted: its affinity
 * does not cover the shard, or it must not migrate. In a shared queue, every
 * CPU would have to skip such a task while it holds the queue's lock.
 */
static __always_inline enum qos_route qos_route(const struct qos_pod *pod, bool urgent, bool restricted)
{
	if (urgent)
		return QOS_TO_URGENT;
	if (qos_pod_over(pod))
		return QOS_TO_PARK;
	return restricted ? QOS_TO_CPU : QOS_TO_SHARD;
}

/* qos_queued records that a task enters a queue with waiting other tasks (ops.enqueue, and the reaper's moves). */
static __always_inline void qos_queued(struct qos_queue *q, __u32 waiting, __u64 now)
{
	if (waiting)
		return;
	q->served_at = now;
	if (q->fed_at)
		q->fed_at = now;
}

/*
 * qos_back does the same for a task of this queue that a higher class
 * preempted. The queue was served until now. qos_back takes no number of
 * waiting tasks: counting them would delay the preempting task.
 */
static __always_inline void qos_back(struct qos_queue *q, __u64 now)
{
	q->served_at = now;
}

/*
 * qos_key returns a task's place in a queue's vtime order. vtime is that
 * of its pod *in this shard*, because shards run at different speeds. For
 * a restricted task it is the task's own. Both use the time of the shard's
 * queue. A task that slept gets a credit of at most one slice.
 */
static __always_inline __u64 qos_key(const struct qos_params *p, const struct qos_queue *shard, __u64 *vtime)
{
	__u64 key = *(volatile __u64 *)vtime;
	__u64 least = shard->front > p->slice_ns ? shard->front - p->slice_ns : 0;

	if (key < least && !TENON_BROKEN(KEY)) {
		key = least;
		*(volatile __u64 *)vtime = key;
	}
	return key;
}

/*
 * qos_key_here returns the place of a task in the queue of a CPU. The shard's
 * time stands still if all tasks are restricted, so that the credit for sleep
 * must also be limited by the time of the CPU's queue. A task that comes from
 * elsewhere (moved) starts with this time, since CPUs run at different speeds:
 * with its own it would go before all others here for long, or after them. A
 * task may be ahead by one slice at the lowest weight (50 ms), but not by what it
 * ran out of order: urgent, or by relief.
 */
static __always_inline __u64 qos_key_here(const struct qos_params *p, const struct qos_queue *shard,
					  const struct qos_queue *here, __u64 *vtime, bool moved)
{
	__u64 most = here->front + (moved ? 0 : QOS_PERIOD_NS);

	if ((moved || *(volatile __u64 *)vtime > most) && !TENON_BROKEN(HOME))
		*(volatile __u64 *)vtime = most;
	qos_key(p, here, vtime);
	return qos_key(p, shard, vtime);
}

/*
 * qos_continued records that a task of a CPU's queue asks to continue there;
 * its key is that of qos_key. It may run for long without ops.running.
 */
static __always_inline void qos_continued(struct qos_queue *here, __u64 key)
{
	if (here->front < key)
		here->front = key;
}

/*
 * qos_served records that a task from this queue was put on a CPU
 * (ops.running, except by relief). key is the result of qos_key. The queue
 * is the one in which the task waited, on whichever CPU it runs.
 */
static __always_inline void qos_served(struct qos_queue *q, __u64 key, __u64 now)
{
	if (q->front < key)
		q->front = key;
	q->served_at = now;
}

/*
 * qos_fed records that a task from this queue ran (ops.stopping, and ops.dispatch
 * when it continues; except by relief). A queue that gets little service, in gaps
 * between fair tasks, starves, too. So service counts by its length. Relief
 * begins QOS_STARVED_NS after a queue got less than relief would give.
 */
static __always_inline void qos_fed(struct qos_queue *q, __u64 ran, __u64 now)
{
	__u64 at = q->fed_at + ran * (QOS_PERIOD_NS / QOS_RELIEF_NS);

	q->fed_at = q->fed_at && at < now && !TENON_BROKEN(FED) ? at : now;
}

#define QOS_NOBODY (~0ull) /* the key of a missing task */

enum qos_turn {
	QOS_TURN_NOBODY, /* take from another shard: qos_may_steal */
	QOS_TURN_PREVIOUS,
	QOS_TURN_CPU,
	QOS_TURN_SHARD,
};

/*
 * qos_turn decides in ops.dispatch which task runs next, after the urgent queue:
 * the previous task if it can continue (its key after qos_charge; then
 * qos_pod_settle and qos_pod_take), or the first of the CPU's or of the shard's
 * queue. Keys are the tasks' dsq_vtime (the head of a queue by
 * bpf_iter_scx_dsq); QOS_NOBODY: no task. If it always preferred one queue, the
 * other would starve. If it always changed the task, all weights would be equal.
 */
static __always_inline enum qos_turn qos_turn(__u64 previous, __u64 cpu, __u64 shard)
{
	if (TENON_BROKEN(TURN) && cpu != QOS_NOBODY)
		return QOS_TURN_CPU;
	if (previous != QOS_NOBODY && previous <= cpu && previous <= shard)
		return QOS_TURN_PREVIOUS;
	if (cpu != QOS_NOBODY && cpu <= shard)
		return QOS_TURN_CPU;
	return shard != QOS_NOBODY ? QOS_TURN_SHARD : QOS_TURN_NOBODY;
}

/* qos_may_steal reports whether ops.dispatch, without a task of its shard, may take one from this queue of another. */
static __always_inline bool qos_may_steal(const struct qos_queue *q, __u32 waiting, __u64 now)
{
	return waiting && now > q->served_at + QOS_STEAL_NS;
}

/* qos_weight combines the weights of the pod and of the task (scx.weight, from nice). */
static __always_inline __u32 qos_weight(__u32 pod, __u32 task)
{
	__u64 w = (__u64)pod * task / 100;

	return w < 1 ? 1 : w > 10000 ? 10000 : w;
}

/*
 * qos_slice returns the maximum length of a run, by the verdict of
 * qos_be_start. A light pod gets short slices: a full one, charged in
 * vtime, would exclude it for seconds. Call qos_pod_take afterwards.
 */
static __always_inline __u64 qos_slice(const struct qos_params *p, __u32 weight, enum qos_verdict v, bool urgent)
{
	__u64 ns = p->slice_ns;

	if (weight < 100)
		ns = ns * weight / 100;
	if (ns > QOS_MS && urgent)
		ns = QOS_MS;
	if (ns > QOS_RELIEF_NS && v == QOS_RUN_RELIEF)
		ns = QOS_RELIEF_NS;
	return ns < QOS_SLICE_MIN_NS ? QOS_SLICE_MIN_NS : ns;
}

/*
 * qos_pod_take takes a slice out of the pod's budget before the run, so
 * that many threads cannot spend it together. ops.running calls it, and
 * ops.dispatch before the previous task continues (after qos_pod_settle).
 * Returns the granted slice. 0: the pod is over budget; set the slice to 0
 * and kick the own CPU, so that ops.enqueue parks the task. For urgent
 * tasks and relief, do not call it: they run with the full slice, as debt.
 */
static __always_inline __u64 qos_pod_take(struct qos_pod *pod, __u64 want)
{
	__s64 left;
	__u64 grant = want;

	if (!pod->quota_ns || TENON_BROKEN(QUOTA))
		return want;
	left = __sync_fetch_and_add(&pod->budget_ns, -(__s64)want);
	if (left <= 0)
		grant = 0;
	else if (left < (__s64)want)
		grant = left < (__s64)QOS_SLICE_MIN_NS ? QOS_SLICE_MIN_NS : (__u64)left;
	if (grant > want)
		grant = want;
	if (grant != want)
		__sync_fetch_and_add(&pod->budget_ns, (__s64)(want - grant));
	return grant;
}

/*
 * qos_pod_settle returns the unused part of a grant to the budget, or
 * takes what was used beyond it (ops.stopping; ops.dispatch when the task
 * continues). granted is 0 if qos_pod_take was not called.
 */
static __always_inline void qos_pod_settle(struct qos_pod *pod, __u64 granted, __u64 ran)
{
	__s64 back = (__s64)(granted - ran);
	__s64 left, most = (__s64)pod->quota_ns;

	if (!pod->quota_ns)
		return;
	left = __sync_fetch_and_add(&pod->budget_ns, back) + back;
	if (back > 0 && left > most) /* refilled meanwhile: a quota is not saved up */
		__sync_fetch_and_add(&pod->budget_ns, -(left - most < back ? left - most : back));
}

/* qos_charge advances a vtime (see qos_key) by a run (ops.stopping; ops.dispatch when the task continues). */
static __always_inline void qos_charge(__u64 *vtime, __u64 ran, __u32 weight)
{
	__sync_fetch_and_add(vtime, ran * 100 / (weight && !TENON_BROKEN(WEIGHT) ? weight : 100));
}

/*
 * qos_pod_refill refills a budget. The reaper of *one* shard calls it for
 * each pod in each pass. It pays debt first, but at most ten periods. The
 * minimum quota is large enough for tasks to run within the watchdog's time.
 */
static __always_inline void qos_pod_refill(struct qos_pod *pod, __u64 now)
{
	__s64 more = pod->quota_ns < QOS_POD_MIN_NS && !TENON_BROKEN(POD_MIN) ? QOS_POD_MIN_NS : pod->quota_ns;
	__s64 have = *(volatile __s64 *)&pod->budget_ns;
	__s64 next = have;

	if (!pod->quota_ns || now < pod->refill_at)
		return;
	pod->refill_at += QOS_PERIOD_NS;
	if (pod->refill_at <= now) /* the first time, or the reaper slept */
		pod->refill_at = now + QOS_PERIOD_NS;
	if (next < -10 * more)
		next = -10 * more;
	next = next > 0 ? more : next + more;
	__sync_fetch_and_add(&pod->budget_ns, next - have);
}

/*
 * qos_pod_unpark returns the number of parked tasks that the reaper moves
 * back, with qos_route and qos_key as in ops.enqueue. More tasks than can
 * run would only find the budget used up and return. They would keep their
 * place, because the parking queue is in the order of the begin of the wait.
 */
static __always_inline __u32 qos_pod_unpark(const struct qos_pod *pod)
{
	__s64 left = *(const volatile __s64 *)&pod->budget_ns;

	if (!pod->quota_ns)
		return ~0u;
	return left <= 0 ? 0 : (__u32)((__u64)left / QOS_SLICE_NS) + 1;
}

/* The number of BE tasks that run or wait, and of CPUs: in this shard, and in all shards. */
struct qos_demand {
	__u32 here, all;
	__u32 cpus_here, cpus_all;
};

/*
 * qos_cap_part returns a shard's part of the node's cap, in thousandths of
 * a CPU: by demand if the cap is short, otherwise the demand plus a part
 * of the rest by size. The sum over all shards never exceeds the cap.
 */
static __always_inline __u32 qos_cap_part(const struct qos_params *p, const struct qos_demand *d)
{
	__u64 all = d->all * 1000ull, cap = p->cap_mcpu;

	if (cap >= d->cpus_all * 1000ull)
		return d->cpus_here * 1000;
	if (cap >= all)
		return d->here * 1000 + (cap - all) * d->cpus_here / (d->cpus_all ? d->cpus_all : 1);
	return cap * d->here / d->all;
}

/*
 * qos_cap_limit converts a part to whole CPUs for this moment
 * (shard.limit). The mean over QOS_PERIOD_NS is the part, and at any
 * time the limits of all shards add up to the cap, rounded up or
 * down. before: the sum of the parts of the shards before this one.
 */
static __always_inline __u32 qos_cap_limit(__u32 before, __u32 part, __u64 now)
{
	__u32 turn = now % QOS_PERIOD_NS * 1000 / QOS_PERIOD_NS;

	return (before + part + turn) / 1000 - (before + turn) / 1000;
}

/* qos_headroom returns how many whole idle cores a shard of this size keeps for LS; wanted < 0: the default. */
static __always_inline __u32 qos_headroom(__u32 cores, __s32 wanted)
{
	/* With few cores, one is too large a part, and a core with LSX has an idle thread anyway. */
	__u32 n = cores < 8 ? 0 : cores < 40 ? 1 : cores / 20;

	if (wanted >= 0)
		n = wanted;
	return n < cores ? n : cores ? cores - 1 : 0;
}

/*
 * qos_rank orders the idle CPUs for ops.select_cpu. The best has the
 * highest rank; 0: do not choose this CPU. v is qos_legal's verdict. BE
 * comes beside BE, which leaves whole cores to LS.
 */
static __always_inline __u32 qos_rank(enum qos_verdict v, const struct qos_core *c, const struct qos_asks *a,
				      bool previous)
{
	if (v != QOS_RUN)
		return 0;
	if (previous)
		return 4;
	if (qos_read(&c->be) & ~qos_bit(a->thread))
		return 3;
	return a->alone ? 1 : 2;
}

#endif
