/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
#ifndef TENON_SCHEDULER_H
#define TENON_SCHEDULER_H

/*
 * The decisions of the BE scheduler as plain functions over structs, without
 * maps, helpers and clocks. The kernel calls them in scheduler.bpf.c, and a
 * simulator in test/scheduler, so the tested code is the code that runs.
 *
 * Only BE threads are in sched_ext. Fair tasks preempt them by class order,
 * so these functions decide only when and where BE *may* run: never beside
 * LSX on a core, never above the pod's quota, the node's cap or the
 * headroom of idle cores. They also ensure that BE makes progress.
 *
 * In BPF the includer provides __u32, __u64 and __s64 (kernel.h). Times are
 * ns of one monotonic clock. A "thread" is the index of a CPU in its core.
 */
#include <stdbool.h> /* the compiler's own; after kernel.h, which has a type bool */
#ifndef __bpf__
#include <linux/types.h>
#ifndef __always_inline
#define __always_inline inline __attribute__((always_inline))
#endif
#endif

/* A test may switch off one rule to verify that its checks notice that. */
#ifndef TENON_BROKEN
#define TENON_BROKEN(rule) 0
#endif

enum qos_class {
	QOS_NONE,   /* the idle task, or not known yet */
	QOS_NORMAL, /* system and unmanaged: does not expel and is not expelled */
	QOS_BE,
	QOS_LS,	 /* before BE on its own CPU, by class order; does not expel */
	QOS_LSX, /* like LS, and BE may not run on the other threads of its core */
	QOS_CLASSES = 8, /* a power of two, so that a mask bounds an index */
};

#define QOS_THREADS 8u /* maximum number per core; a power of two */

#define QOS_US 1000ull
#define QOS_MS (1000 * QOS_US)
#define QOS_SEC (1000 * QOS_MS)

#define QOS_HOLD_NS (200 * QOS_US)    /* default of hold_ns */
#define QOS_SLICE_NS (4 * QOS_MS)     /* default of slice_ns */
#define QOS_SLICE_MIN_NS (500 * QOS_US) /* a shorter slice costs more than it gains */
#define QOS_PERIOD_NS (100 * QOS_MS)  /* period of quotas, of the cap and of relief */
#define QOS_POD_MIN_NS QOS_MS	      /* minimum budget per period, for any quota */
#define QOS_RELIEF_NS QOS_MS	      /* duration of relief per period, on one core of a shard */
#define QOS_STARVED_NS (2 * QOS_SEC)  /* time without service after which relief begins */
#define QOS_URGENT_NS (10 * QOS_MS)   /* the same for tasks that exit or were preempted inside the kernel */
#define QOS_SPILL_NS (8 * QOS_SEC)    /* wait after which the agent is asked to demote the task */
#define QOS_STEAL_NS (2 * QOS_MS)     /* time for which other shards leave tasks to their own shard */
#define QOS_STUCK_NS (20 * QOS_MS)    /* time after which a task leaves the queue of a CPU that runs no BE */
#define QOS_REAP_NS QOS_MS	      /* period of the reaper while the shard has BE */
#define QOS_REAP_IDLE_NS (20 * QOS_MS) /* period of the reaper without BE */

/* Parameters that user space sets for the node. */
struct qos_params {
	__u64 hold_ns;	/* siblings stay expelled for this time after LSX stops; 0: no hold */
	__u64 slice_ns; /* slice of a pod of weight 100 or more */
	__u32 smt_rule; /* 0: LSX does not expel */
	__u32 headroom; /* number of whole idle cores that a shard keeps for LS: qos_headroom */
	__u32 cap_mcpu; /* maximum of all CPUs that run BE, in thousandths */
	__u32 pad;
};

/*
 * One core, in its own cache line. Bit n represents thread n. The first three
 * words change only by atomics that return the old value: qos_set, qos_clear.
 */
struct qos_core {
	__u32 ls;	/* threads that run LSX */
	__u32 be;	/* threads that run BE */
	__u32 expelled; /* threads that are idle because BE was refused, until they are woken */
	__u32 held;	/* the thread that ran LSX last; its siblings wait until hold_until */
	__u64 hold_until;
	__u64 relief_until; /* end of the time for which the SMT rule is suspended */
	__u64 pad[4];
} __attribute__((aligned(64)));

/* A queue of waiting tasks in vtime order: one per shard, and one per CPU. */
struct qos_queue {
	__u64 front;	   /* vtime of the last served task */
	__u64 served_at;   /* last service except by relief, or the time when the queue stopped being empty */
	__u64 fed_at;	   /* until then the queue got at least as much as by relief: qos_fed; 0: unknown */
	__u64 relieved_at; /* last service by relief */
};

/* CPUs with common queues and a common reaper: a last-level cache, or a part of it. */
struct qos_shard {
	struct qos_queue queue;
	struct qos_queue urgent; /* in order of arrival; its front has no meaning */
	__u64 relief_at;	 /* earliest time of the next relief */
	__u32 running;	 /* CPUs that run BE now */
	__u32 limit;	 /* maximum number of such CPUs: this shard's part of the cap, set by the reaper */
};

/* The functions that access a core's words. A model checker replaces them. */
#ifndef TENON_MEMORY
/*
 * Sets or clears a bit with full ordering: later reads happen after it on
 * every machine. BPF orders only atomics whose result is used, hence the asm.
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

/* qos_relief reports whether relief suspends the rules on the core. Any CPU may call it. */
static __always_inline bool qos_relief(const struct qos_core *c, __u64 now)
{
	return qos_read_time(&c->relief_until) > now;
}

/*
 * ---- The core protocol: each of two CPUs stores its own state, then
 * loads the other's. At least one of the two then sees the other's store.
 */

/* Kicks that the caller must send, as masks of threads of the core. */
struct qos_kicks {
	__u32 preempt; /* SCX_KICK_PREEMPT: these run BE and must stop */
	__u32 wake;    /* SCX_KICK_IDLE: these may run BE again */
};

/* qos_ls_start records that LSX was put on thread, and returns the threads whose BE must stop. Called by qos_switch. */
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
 * qos_ls_stop records that LSX left thread, and returns the threads to wake.
 * With a hold, they must wait. If ops.dispatch looks for BE on this CPU, it sets
 * a timer for them. Otherwise they wake at once, are refused (QOS_REFUSE_HOLD)
 * and set their own timers: the hook cannot set one. Called by qos_switch.
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
 * qos_switch maintains the LSX bits. The hook
 * (tp_btf/sched_switch) calls it at every switch with the class
 * of the next task, and sends the kicks. The bit, not the caller,
 * tells which class left the CPU. Therefore the next switch
 * corrects a missed switch, or a class that changed meanwhile.
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

/* The reason why a CPU may run BE now, or may not. Also an index of counters. */
enum qos_verdict {
	QOS_RUN,
	QOS_RUN_RELIEF,	     /* against a rule, for QOS_RELIEF_NS: see qos_slice */
	QOS_REFUSE_SMT,	     /* a sibling runs LSX */
	QOS_REFUSE_HOLD,     /* a sibling ran LSX shortly before */
	QOS_REFUSE_FAIR,     /* fair tasks wait on this CPU (possible only with ext_server) */
	QOS_REFUSE_CAP,	     /* the allowed number of CPUs runs BE */
	QOS_REFUSE_HEADROOM, /* LS keeps this idle core */
	QOS_VERDICTS = 8,    /* a power of two */
};

static __always_inline bool qos_refused(enum qos_verdict v)
{
	return v > QOS_RUN_RELIEF;
}

/* qos_beside applies the SMT rule: it tells whether the siblings of thread forbid BE. */
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
 * qos_be_start records that BE was put on thread (ops.running). A task
 * that a fair one preempted gets there without ops.dispatch, because it
 * resumes from the local queue. After a refusal, the caller counts it,
 * sets the task's slice to 0 and kicks its own CPU.
 */
static __always_inline enum qos_verdict qos_be_start(const struct qos_params *p, struct qos_core *c, struct qos_shard *s,
						     __u32 thread, __u64 now)
{
	__u32 running = qos_read(&s->running);
	bool relief;

	/* Counts only a changed bit, so that the count always equals the number of bits. */
	if (!(qos_set(&c->be, qos_bit(thread)) & qos_bit(thread)))
		running = __sync_fetch_and_add(&s->running, 1);
	relief = qos_relief(c, now);
	if (p->smt_rule && qos_read(&c->ls) & ~qos_bit(thread) && !TENON_BROKEN(RUNNING_CHECK))
		return relief ? QOS_RUN_RELIEF : QOS_REFUSE_SMT;
	if (running >= qos_read(&s->limit) && !TENON_BROKEN(CAP))
		return relief ? QOS_RUN_RELIEF : QOS_REFUSE_CAP;
	return QOS_RUN;
}

/* qos_be_stop records that BE left thread (ops.stopping). */
static __always_inline void qos_be_stop(struct qos_core *c, struct qos_shard *s, __u32 thread)
{
	if (qos_clear(&c->be, qos_bit(thread)) & qos_bit(thread))
		__sync_fetch_and_add(&s->running, -1);
}

/* qos_be_exposed reports whether BE on thread is beside LSX against the rule. */
static __always_inline bool qos_be_exposed(const struct qos_params *p, const struct qos_core *c, __u32 thread,
					   __u64 now)
{
	return p->smt_rule && qos_read(&c->ls) & ~qos_bit(thread) && !qos_relief(c, now);
}

/*
 * qos_be_tick reports whether ops.tick must set the slice of the BE task on
 * thread to 0. After a lost kick, this limits the time beside LSX to one tick.
 */
static __always_inline bool qos_be_tick(const struct qos_params *p, const struct qos_core *c, __u32 thread, __u64 now)
{
	return qos_be_exposed(p, c, thread, now) && !TENON_BROKEN(TICK);
}

/*
 * ---- May this CPU run BE?
 */

/* The state of a CPU, which the caller provides. */
struct qos_asks {
	__u64 now;
	__u32 thread;
	__u32 idle_cores; /* whole idle cores of the shard, including this one if alone */
	bool alone;	  /* all other threads of the core are idle, or lent */
	bool runs_be;	  /* a BE task is on this CPU and could continue: no new placement */
	bool fair;	  /* fair tasks wait on this CPU */
	bool bound;	  /* only tasks that may run on no other core of the shard are to run here */
	bool lent;	  /* such tasks run here, on a core that is kept for LS */
};

/*
 * qos_last_cores reports whether BE here would take a whole idle core that is
 * kept for LS. Tasks that may run nowhere else may take it: they would wait
 * until a core of others becomes idle, beside their own idle CPU. No other task
 * follows them there (lent).
 */
static __always_inline bool qos_last_cores(const struct qos_params *p, const struct qos_asks *a)
{
	if (a->bound && !TENON_BROKEN(BOUND))
		return false;
	return p->headroom && a->alone && (!a->runs_be || a->lent) && a->idle_cores <= p->headroom;
}

/*
 * qos_legal applies all rules and changes nothing. It is for ops.select_cpu,
 * for ops.enqueue before it kicks an idle CPU, and for the reaper.
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
	/* Relief overrides every rule, but must never delay a fair task. */
	if (qos_refused(v) && qos_relief(c, a->now) && !a->fair)
		return QOS_RUN_RELIEF;
	return v;
}

/*
 * qos_may_run decides at the start of ops.dispatch. If it refuses, the caller
 * returns without moving a task. With SCX_OPS_ENQ_LAST the CPU then goes idle.
 * The reaper wakes it, or the CPU that ends the reason (qos_ls_stop). For a
 * hold, the caller sets a timer that kicks this CPU at hold_until. If BE is
 * allowed but no task is found, the CPU is idle and ops.enqueue wakes it.
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
