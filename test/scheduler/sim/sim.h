/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_TEST_SIM_H
#define TENON_TEST_SIM_H

/*
 * A discrete-event simulator of the CPUs and of as much of the kernel as the
 * BE scheduler meets. The scheduler itself is bpf/scheduler.h.
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

enum load { BURSTS, HOGS, SPINS, NIGHTS }; /* now and then, when told to, always, all together */

struct task {
	enum qos_class class;
	enum load load;
	enum state state;
	u32 id, cpu, shard, pod, nice; /* shard: of the queue it waits in, or waited in last */
	bool pinned, exits, in_kernel, spilled;
	u64 burst_ns, sleep_ns; /* at most */
	u64 left_ns;		/* of this burst */

	struct list *on; /* waits here */
	struct task *prev, *next;
	u64 key, vtime;

	u64 slice, granted, ran_at_spill;
	struct qos_queue *from; /* the queue whose service this run is */
	bool relief, refused, dispatched;
	u64 since;   /* waits since */
	u64 put_at;  /* in the list that it waits on */
	u64 started; /* runs since */
	u64 ran_ns;
};

struct cpu {
	u32 id, core, thread, shard;
	struct task *curr; /* 0: idle */
	struct task *next; /* while it switches */
	bool switching, resched;
	u32 lost; /* kicks, while BE is beside LSX */
	u64 untrue_until; /* its core's bits may be */
	u64 unseen_since; /* the hook missed a switch */
	u32 generation; /* of the pending end of the run */
	u32 tick;	/* of the pending tick */
	u32 switches;
	struct list fair, spilled, local, queue;
	u64 spilled_at;
	struct qos_queue service;
	struct qos_look look;

	/* Truth, for the checks. */
	enum qos_class class;
	u64 class_ns[QOS_CLASSES];
	u64 hook_since, hook_ns[QOS_CLASSES]; /* as the hook saw it */
	enum qos_class hook_class;
	u64 exposed_since; /* BE beside LSX, 0: not */
	u64 wrong_since;   /* the bits are not true, 0: they are */
	u64 wanted_since; /* idle, and could run BE that waits; 0: not */
	u64 lsx_since;
	u64 lsx_until;
};

struct shard {
	struct qos_shard q;
	struct list queue, urgent;
	u32 first, cpus, cores;
	u32 before, part; /* of the cap */
	u64 vtime[PODS];
	u64 relief_at;
};

struct pod {
	struct qos_pod q;
	struct list parked;
	u64 ran_ns;
	__s64 granted_ns; /* in this period, less what was given back */
	bool other; /* not one whose share is checked */
};

/* What is tried. */
enum scenario {
	STORM,
	BESIDE, /* without an agent: BE always has an idle CPU, though it may be beside LSX for long */
	STEADY, /* BE always waits, nothing else disturbs: for shares */
};

struct sim {
	u64 unseen_ns; /* what the hook could not know of */
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
	bool changed; /* the parameters, in this window */
	u32 calm;     /* the bursts of LS come that much more seldom */
};

extern struct sim sim;

enum event {
	EV_WAKE,    /* of a task */
	EV_END,	    /* of the run on a CPU: its burst, or its turn among fair tasks */
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
u64 between(u64 least, u64 most); /* skewed to the small ones */
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
enum qos_class class_of(const struct task *t);

/* ops.c */
u32 ops_select_cpu(struct task *t);
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
