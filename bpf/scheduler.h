/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
#ifndef TENON_SCHEDULER_H
#define TENON_SCHEDULER_H

/*
 * The BE scheduler's decisions as plain functions over plain structs: no map,
 * no helper, no clock. scheduler.bpf.c calls them in the kernel, and
 * test/scheduler in a simulator, so what was tested is what runs.
 *
 * Only BE threads are in sched_ext. Any fair task preempts them by class
 * order, so what is decided here is when and where BE *may* run: never beside
 * a thread of the core that runs LSX, never above the pod's quota, the node's
 * cap or the headroom of idle cores; and that it still moves forward.
 *
 * In BPF the includer brings __u32, __u64 and __s64 (kernel.h). Times are ns of
 * one monotonic clock. "Thread" is the index of a CPU within its core.
 */
#include <stdbool.h> /* the compiler's own; after kernel.h, which has a type bool */
#ifndef __bpf__
#include <linux/types.h>
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#endif

/* A test may break one rule, to see that its checks would notice. */
#ifndef TENON_BROKEN
#define TENON_BROKEN(rule) 0
#endif

enum qos_class {
	QOS_NONE,   /* the idle task, or not known yet */
	QOS_NORMAL, /* system and unmanaged: neither expels nor is expelled */
	QOS_BE,
	QOS_LS,	 /* before BE on its own CPU, by class order; expels nobody */
	QOS_LSX, /* and no BE runs on the other threads of its core */
	QOS_CLASSES = 8, /* a power of two, so that a mask bounds an index */
};

#define QOS_THREADS 8u /* of a core, at most; a power of two */

#define QOS_US 1000ull
#define QOS_MS (1000 * QOS_US)
#define QOS_SEC (1000 * QOS_MS)

#define QOS_HOLD_NS (200 * QOS_US)    /* default of hold_ns */
#define QOS_SLICE_NS (4 * QOS_MS)     /* default of slice_ns */
#define QOS_SLICE_MIN_NS (500 * QOS_US) /* shorter ones cost more than they give */
#define QOS_PERIOD_NS (100 * QOS_MS)  /* of quotas, of the cap, of relief */
#define QOS_POD_MIN_NS QOS_MS	      /* a period, whatever the quota */
#define QOS_RELIEF_NS QOS_MS	      /* a period, on one core of a shard */
#define QOS_STARVED_NS (2 * QOS_SEC)  /* without service: relief begins */
#define QOS_URGENT_NS (10 * QOS_MS)   /* the same for exiting and preempted-in-kernel tasks */
#define QOS_SPILL_NS (8 * QOS_SEC)    /* a task waits that long: tell the agent */
#define QOS_STEAL_NS (2 * QOS_MS)     /* leave tasks to their own shard that long */
#define QOS_REAP_NS QOS_MS	      /* period of the reaper while BE is here */
#define QOS_REAP_IDLE_NS (20 * QOS_MS) /* and while it is not */

/* What user space sets for the node. */
struct qos_params {
	__u64 hold_ns;	/* siblings stay expelled that long after LSX stops; 0: not at all */
	__u64 slice_ns; /* of a pod of weight 100 or more */
	__u32 smt_rule; /* 0: LSX expels nobody */
	__u32 headroom; /* whole idle cores that a shard keeps for LS: qos_headroom */
	__u32 cap_mcpu; /* CPUs that run BE, all together, in thousandths */
	__u32 pad;
};

/*
 * One core, a cache line of its own. Bit n stands for thread n. The first
 * three words change by value-returning atomics only: qos_set, qos_clear.
 */
struct qos_core {
	__u32 ls;	/* runs LSX */
	__u32 be;	/* runs BE */
	__u32 expelled; /* was refused BE and is idle, until it is woken */
	__u32 held;	/* the thread that ran LSX last: until hold_until its siblings wait */
	__u64 hold_until;
	__u64 relief_until; /* the SMT rule is suspended until then */
	__u64 pad[4];
} __attribute__((aligned(64)));

/* A queue of waiting tasks in vtime order: one for a shard, one for each CPU. */
struct qos_queue {
	__u64 front;	   /* vtime of the task that was served last */
	__u64 served_at;   /* last ordinary service, or when it stopped being empty */
	__u64 fed_at;	   /* until then it got at least what relief would give: qos_fed; 0: not told */
	__u64 relieved_at; /* last service by relief */
};

/* CPUs that share queues and a reaper: a last-level cache, or a part of it. */
struct qos_shard {
	struct qos_queue queue;
	struct qos_queue urgent; /* in order of arrival: its front means nothing */
	__u64 relief_at;	 /* no relief before */
	__u32 running;	 /* CPUs that run BE now */
	__u32 limit;	 /* and how many may: this shard's part of the cap, by the reaper */
};

/* The ways to touch a core's words. A model checker brings its own. */
#ifndef TENON_MEMORY
/*
 * A bit set or cleared with full ordering: what is read next is read after it
 * on every machine. BPF orders only atomics whose result is used, hence the asm.
 */
static __always_inline __u32 qos_set(__u32 *word, __u32 bits)
{
	__u32 old = __sync_fetch_and_or(word, bits);

	__asm__ volatile("" : "+r"(old));
	return old;
}

static __always_inline __u32 qos_clear(__u32 *word, __u32 bits)
{
	__u32 old = __sync_fetch_and_and(word, ~bits);

	__asm__ volatile("" : "+r"(old));
	return old;
}

static __always_inline __u32 qos_read(const __u32 *word)
{
	return *(const volatile __u32 *)word;
}

static __always_inline __u64 qos_read_time(const __u64 *time)
{
	return *(const volatile __u64 *)time;
}

static __always_inline void qos_write(__u32 *word, __u32 value)
{
	*(volatile __u32 *)word = value;
}

static __always_inline void qos_write_time(__u64 *time, __u64 value)
{
	*(volatile __u64 *)time = value;
}
#endif

static __always_inline __u32 qos_bit(__u32 thread)
{
	return 1u << (thread & (QOS_THREADS - 1));
}

/* qos_relief says whether the core is in relief. Anywhere. */
static __always_inline bool qos_relief(const struct qos_core *c, __u64 now)
{
	return qos_read_time(&c->relief_until) > now;
}

/*
 * ---- The core protocol: two pairs of "store own, then load the other's".
 * Of two CPUs that store and then load, at least one sees the other's store.
 */

/* Kicks that a step asks for, as masks of threads of the core. */
struct qos_kicks {
	__u32 preempt; /* SCX_KICK_PREEMPT: they run BE that must go */
	__u32 wake;    /* SCX_KICK_IDLE: they may have BE again */
};

/* qos_ls_start: LSX was put on thread. Use qos_switch. */
static __always_inline __u32 qos_ls_start(const struct qos_params *p, struct qos_core *c, __u32 thread, __u64 now)
{
	__u32 be;

	qos_set(&c->ls, qos_bit(thread));
	if (!p->smt_rule || TENON_BROKEN(PREEMPT_KICK))
		return 0;
	be = qos_read(&c->be) & ~qos_bit(thread);
	return be && !qos_relief(c, now) ? be : 0;
}

/*
 * qos_ls_stop: LSX left thread. Returns the threads to wake. With a hold time
 * that is at its end: by a timer that ops.dispatch sets on this CPU if it looks
 * for BE now, or else on theirs, when they are woken at once and refused
 * (QOS_REFUSE_HOLD). This program cannot set one. Use qos_switch.
 */
static __always_inline __u32 qos_ls_stop(const struct qos_params *p, struct qos_core *c, __u32 thread, __u64 now)
{
	__u32 ls;

	if (p->hold_ns && p->smt_rule) { /* before the bit: who sees it clear sees the hold */
		qos_write(&c->held, qos_bit(thread));
		qos_write_time(&c->hold_until, now + p->hold_ns);
	}
	ls = qos_clear(&c->ls, qos_bit(thread)) & ~qos_bit(thread);
	if (ls || TENON_BROKEN(WAKE_KICK))
		return 0;
	return qos_read(&c->expelled);
}

/*
 * qos_switch keeps the LSX bits. Called on every switch (tp_btf/sched_switch)
 * with the class of the task that comes to this CPU. The caller carries out
 * the kicks. What left the CPU is told by the bit, not by the caller: so a
 * switch that was missed, or a class that changed meanwhile, is made good at
 * the next one.
 */
static __always_inline struct qos_kicks qos_switch(const struct qos_params *p, struct qos_core *c, __u32 thread,
						   enum qos_class is, __u64 now)
{
	bool was_lsx = qos_read(&c->ls) & qos_bit(thread);
	struct qos_kicks k = {};

	if (!was_lsx && is == QOS_LSX)
		k.preempt = qos_ls_start(p, c, thread, now);
	else if (was_lsx && is != QOS_LSX)
		k.wake = qos_ls_stop(p, c, thread, now);
	return k;
}

/* Why a CPU may, or may not, run BE now. Also an index for counters. */
enum qos_verdict {
	QOS_RUN,
	QOS_RUN_RELIEF,	     /* against a rule, for QOS_RELIEF_NS: see qos_slice */
	QOS_REFUSE_SMT,	     /* a sibling runs LSX */
	QOS_REFUSE_HOLD,     /* a sibling ran LSX a moment ago */
	QOS_REFUSE_FAIR,     /* fair tasks wait on this CPU (only ext_server asks then) */
	QOS_REFUSE_CAP,	     /* enough CPUs run BE */
	QOS_REFUSE_HEADROOM, /* this idle core is kept for LS */
	QOS_VERDICTS = 8,    /* a power of two */
};

static __always_inline bool qos_refused(enum qos_verdict v)
{
	return v > QOS_RUN_RELIEF;
}

/* qos_beside is the SMT rule: what the siblings of thread forbid. */
static __always_inline enum qos_verdict qos_beside(const struct qos_params *p, const struct qos_core *c, __u32 thread,
						   __u64 now)
{
	if (!p->smt_rule || TENON_BROKEN(SMT_RULE))
		return QOS_RUN;
	if (qos_read(&c->ls) & ~qos_bit(thread))
		return QOS_REFUSE_SMT;
	if (qos_read_time(&c->hold_until) > now && qos_read(&c->held) & ~qos_bit(thread) && !TENON_BROKEN(HOLD))
		return QOS_REFUSE_HOLD;
	return QOS_RUN;
}

/*
 * qos_be_start: BE was put on thread (ops.running), also by a path that does
 * not pass ops.dispatch: a task that a fair one preempted resumes from the
 * local queue. If the verdict is a refusal, the caller counts it, sets the
 * task's slice to 0 and kicks its own CPU.
 */
static __always_inline enum qos_verdict qos_be_start(const struct qos_params *p, struct qos_core *c, struct qos_shard *s,
						     __u32 thread, __u64 now)
{
	__u32 running = qos_read(&s->running);
	bool relief;

	/* By the bit's change, so that the count is that of the bits, whatever happens. */
	if (!(qos_set(&c->be, qos_bit(thread)) & qos_bit(thread)))
		running = __sync_fetch_and_add(&s->running, 1);
	relief = qos_relief(c, now);
	if (p->smt_rule && qos_read(&c->ls) & ~qos_bit(thread) && !TENON_BROKEN(RUNNING_CHECK))
		return relief ? QOS_RUN_RELIEF : QOS_REFUSE_SMT;
	if (running >= qos_read(&s->limit) && !TENON_BROKEN(CAP))
		return relief ? QOS_RUN_RELIEF : QOS_REFUSE_CAP;
	return QOS_RUN;
}

/* qos_be_stop: BE left thread (ops.stopping). */
static __always_inline void qos_be_stop(struct qos_core *c, struct qos_shard *s, __u32 thread)
{
	if (qos_clear(&c->be, qos_bit(thread)) & qos_bit(thread))
		__sync_fetch_and_add(&s->running, -1);
}

/* qos_be_exposed: BE on thread would be beside LSX, against the rule. */
static __always_inline bool qos_be_exposed(const struct qos_params *p, const struct qos_core *c, __u32 thread,
					   __u64 now)
{
	return p->smt_rule && qos_read(&c->ls) & ~qos_bit(thread) && !qos_relief(c, now);
}

/*
 * qos_be_tick: BE runs on thread (ops.tick). True: set its slice to 0. It
 * bounds the time beside LSX to one tick when a kick was lost.
 */
static __always_inline bool qos_be_tick(const struct qos_params *p, const struct qos_core *c, __u32 thread, __u64 now)
{
	return qos_be_exposed(p, c, thread, now) && !TENON_BROKEN(TICK);
}

/*
 * ---- May this CPU run BE?
 */

/* What the caller knows of a CPU. */
struct qos_asks {
	__u64 now;
	__u32 thread;
	__u32 idle_cores; /* whole idle cores of the shard, this one included if alone */
	bool alone;	  /* all other threads of the core are idle */
	bool runs_be;	  /* a BE task is on this CPU and could go on: not a new placement */
	bool fair;	  /* fair tasks wait on this CPU */
};

/* qos_last_cores: BE here would take one of the whole idle cores that are kept for LS. */
static __always_inline bool qos_last_cores(const struct qos_params *p, const struct qos_asks *a)
{
	return p->headroom && a->alone && !a->runs_be && a->idle_cores <= p->headroom;
}

/*
 * qos_legal weighs all rules but changes nothing. For ops.select_cpu, for
 * ops.enqueue before it kicks an idle CPU, and for the reaper.
 */
static __always_inline enum qos_verdict qos_legal(const struct qos_params *p, const struct qos_core *c,
						  const struct qos_shard *s, const struct qos_asks *a)
{
	enum qos_verdict v = qos_beside(p, c, a->thread, a->now);
	__u64 limit = qos_read(&s->limit) + (a->runs_be ? 1ull : 0); /* it is counted in running */

	if (a->fair)
		v = QOS_REFUSE_FAIR;
	else if (v == QOS_RUN && qos_read(&s->running) >= limit && !TENON_BROKEN(CAP))
		v = QOS_REFUSE_CAP;
	else if (v == QOS_RUN && qos_last_cores(p, a) && !TENON_BROKEN(HEADROOM))
		v = QOS_REFUSE_HEADROOM;
	/* Relief is for starvation by any rule; what it may not do is to delay a fair task. */
	if (qos_refused(v) && qos_relief(c, a->now) && !a->fair)
		return QOS_RUN_RELIEF;
	return v;
}

/*
 * qos_may_run decides ops.dispatch, first thing. Refused: return without
 * moving a task; with SCX_OPS_ENQ_LAST the CPU then goes idle, and who lifts
 * the reason wakes it (qos_ls_stop) or the reaper does; for a hold, the caller
 * sets a timer that kicks this CPU at hold_until. Allowed and then no task
 * found: the CPU is idle for want of work, and ops.enqueue wakes it.
 */
static __always_inline enum qos_verdict qos_may_run(const struct qos_params *p, struct qos_core *c,
						    const struct qos_shard *s, const struct qos_asks *a)
{
	enum qos_verdict v = qos_legal(p, c, s, a);

	if (!qos_refused(v) && qos_read(&c->expelled) & qos_bit(a->thread))
		qos_clear(&c->expelled, qos_bit(a->thread));
	if (!qos_refused(v) || v == QOS_REFUSE_FAIR)
		return v;
	qos_set(&c->expelled, qos_bit(a->thread));
	if (TENON_BROKEN(REREAD))
		return v;
	v = qos_legal(p, c, s, a); /* it may have been lifted before our bit was seen */
	if (!qos_refused(v))
		qos_clear(&c->expelled, qos_bit(a->thread));
	return v;
}

#include "scheduler_share.h"
#include "scheduler_reap.h"

#endif
