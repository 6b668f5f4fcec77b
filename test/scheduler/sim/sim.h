/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_TEST_SIM_H
#define TENON_TEST_SIM_H

/*
 * A discrete-event simulator of the CPUs and of the part of the kernel that
 * the BE scheduler depends on. The scheduler itself is bpf/scheduler.h.
 *
 *	main.c	  events, arguments, the run
 *	kernel.c  what the kernel does: switches, kicks, ticks, wake-ups
 *	ops.c	  what scheduler.bpf.c does: the callbacks
 *	reaper.c  and its timer, and the agent
 *	load.c	  what the tasks do
 *	check.c	  what must hold
 */
#include <stdio.h>

#include "mutation.h"

#include "../../../bpf/scheduler.h"

typedef __u64 u64;
typedef __u32 u32;


enum {
	CPUS = 128,
	SHARDS = 8,
	PODS = 16,
	TASKS = 2048,
};

/* A list of waiting tasks in the order of their keys: a dispatch queue. */
struct list {
	struct task *first, *last;
	u32 n;
};

enum state { SLEEPS, WAITS, RUNS };

enum load { BURSTS, HOGS, SPINS, NIGHTS }; /* sometimes, during a phase, always, all at the same time */

struct task {
	enum qos_class class;
	enum load load;
	enum state state;
	u32 id, cpu, shard, pod, nice; /* shard: that of the queue in which it waits, or waited last */
	bool pinned, exits, in_kernel, spilled;
	bool restricted; /* it may not run on the CPUs that BE may not use: cpu.kept */
	u64 burst_ns, sleep_ns; /* maximum */
	u64 left_ns;		/* remaining part of this burst */

	struct list *on; /* the list in which it waits */
	struct task *prev, *next;
	u64 key, vtime;
	u32 home; /* if restricted: the CPU whose time vtime uses, plus one */

	u64 slice, granted, ran_at_spill;
	struct qos_queue *from; /* the queue that this run serves */
	bool relief, refused, dispatched;
	u64 since;   /* start of its wait */
	u64 be_at_put; /* time for which BE had run on the CPU whose queue it entered */
	u64 put_at;  /* time at which it entered the list */
	u64 started; /* start of its run */
	u64 ran_ns;
};

struct cpu {
	u32 id, core, thread, shard;
	struct task *curr; /* 0: idle */
	struct task *next; /* the next task during a switch */
	bool switching, resched;
	bool kept; /* a cpuset keeps restricted tasks off it */
	bool lent; /* its core is kept for LS, and it runs BE that may run on no other core */
	u32 lost; /* lost kicks while BE is beside LSX */
	u64 untrue_until; /* until then its core's bits may be wrong */
	u64 unseen_since; /* time since which the hook has missed a switch */
	u32 generation; /* of the pending end of a run */
	u32 tick;	/* of the pending tick */
	u32 switches;
	struct list fair, spilled, local, queue;
	u64 spilled_at;
	struct qos_queue service;
	struct qos_look look;

	/* The real state, for the checks. */
	enum qos_class class;
	u64 class_ns[QOS_CLASSES];
	u64 hook_since, hook_ns[QOS_CLASSES]; /* the times that the hook has counted */
	enum qos_class hook_class;
	u64 exposed_since; /* BE beside LSX since then; 0: not beside */
	u64 wrong_since;   /* the bits are wrong since then; 0: they are correct */
	u64 wanted_since; /* idle since then although BE waits that may run here; 0: not so */
	u64 missed_since; /* the same, but BE waits in the queue of another CPU */
	u64 stuck_since;  /* its queue is stuck since then although another CPU runs BE */
	u64 lsx_since;
	u64 lsx_until;
};

struct shard {
	struct qos_shard q;
	struct list queue, urgent;
	u32 first, cpus, cores;
	u32 spread_from; /* the CPU whose queue the reaper examines next */
	u32 passes;
	u32 before, part; /* parts of the cap: of the shards before, and of this one */
	u64 vtime[PODS];
	u64 relief_at;
};

struct pod {
	struct qos_pod q;
	struct list parked;
	u64 ran_ns;
	__s64 granted_ns; /* granted in this period, minus unused grants */
	bool other; /* its share is not checked */
};

/* The loads. */
enum scenario {
	STORM,
	BESIDE, /* without an agent: BE always has an idle CPU, which may be beside LSX for long */
	KEPT,	/* each BE task computes, and may run on some CPUs of a shard only */
	STEADY, /* BE always waits, without disturbance: for checks of shares */
};

struct sim {
	u64 unseen_ns; /* time that the hook missed */
	u64 now, events, limit, seed, random;
	enum scenario load;
	u32 cpus, threads, shards, pods, tasks;
	u64 tick_ns;
	struct qos_params p;
	struct qos_core core[CPUS];
	struct cpu cpu[CPUS];
	struct shard shard[SHARDS];
	struct pod pod[PODS];
	struct task task[TASKS];
	bool changed; /* the parameters have changed in this window */
	u32 calm;     /* factor by which the bursts of LS are rarer */
};

extern struct sim sim;

enum event {
	EV_WAKE,    /* of a task */
	EV_END,	    /* of the run on a CPU: end of its burst or time slice */
	EV_SWITCH,  /* a CPU has switched */
	EV_TICK,
	EV_PREEMPT, /* a kick arrives at a CPU */
	EV_IDLE_KICK,
	EV_REAP, /* of a shard */
	EV_AGENT,
	EV_PHASE, /* the load changes */
	EV_WINDOW,
	EVENTS,
};

/* main.c */
void at(u64 when, enum event ev, u32 what, u32 generation);
u64 randomly(u64 below);
u64 between(u64 least, u64 most); /* small values are more frequent */
bool chance(u32 in_a_million);

/* kernel.c */
void put(struct list *l, struct task *t); /* by key */
void put_first(struct list *l, struct task *t);
void take(struct task *t);
void schedule(struct cpu *c);
void switched(struct cpu *c);
void ended(struct cpu *c, u32 generation);
void ticked(struct cpu *c, u32 generation);
void kick(struct cpu *c, enum event ev);
void kicked(struct cpu *c, enum event ev);
void wake(struct task *t);
bool idle(const struct cpu *c);
bool fair(const struct task *t);
bool may_run(const struct task *t, const struct cpu *c);
bool bound(const struct task *t, const struct cpu *c);
bool movable(const struct task *t, const struct cpu *c);
enum qos_class class_of(const struct task *t);

/* ops.c */
void house(struct task *t, struct cpu *c);
u32 ops_select_cpu(struct task *t);
struct cpu *idle_for(struct task *t, const struct cpu *from);
bool alone(const struct cpu *c, bool or_lent);
void ops_enqueue(struct task *t, u32 cpu);
void ops_dispatch(struct cpu *c, struct task *prev);
void ops_running(struct cpu *c, struct task *t);
void ops_stopping(struct cpu *c, struct task *t);
void ops_tick(struct cpu *c, struct task *t);
void hook(struct cpu *c, enum qos_class is);
struct qos_asks asks(const struct cpu *c, bool runs_be);
void carry_out(struct qos_kicks k, u32 core);
struct cpu *sibling(u32 core, u32 thread);
u32 idle_cores(const struct shard *s);
void distrust(u32 core);

/* reaper.c */
void reap(u32 shard);
void agent(void);

/* load.c */
void make_load(void);
void change_load(void);
void sleep_on(struct task *t);

/* check.c */
void check_switch(struct cpu *c, enum qos_class was, enum qos_class is, struct task *t);
void check_place(const struct cpu *c);
void check_wait(const struct task *t);
void check_reaped(u32 shard);
void check_relief(u32 shard);
void check_window(void);
void check_period(u32 pod);
void account(struct cpu *c);
int check_end(void);
void broke(const char *invariant, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
