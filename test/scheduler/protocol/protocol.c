// SPDX-License-Identifier: Apache-2.0
/*
 * All interleavings of the core protocol of bpf/scheduler.h: CPUs on
 * which LSX starts and stops, and one sibling that always has BE to run.
 * Only the header's memory accesses are replaced, so that every access to
 * a core's words is a step, and the steps of all CPUs mix in every order.
 *
 * With -memory tso the atomics become plain loads and stores, and each
 * CPU has a store buffer that drains at any time, as on x86. Then the
 * protocol is wrong, and the check must detect that.
 *
 * CPUs are coroutines. The next step of a CPU depends only on its reads.
 * So a state is the memory, the kicks in flight, and a hash of each CPU's
 * reads. A known state is not explored again.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include "../sim/mutation.h"

#define TENON_MEMORY
#include <linux/types.h>

static __u32 qos_set(__u32 *word, __u32 bits);
static __u32 qos_clear(__u32 *word, __u32 bits);
static __u32 qos_read(const __u32 *word);
static __u64 qos_read_time(const __u64 *time);
static void qos_write(__u32 *word, __u32 value);
static void qos_write_time(__u64 *time, __u64 value);

#include "../../../bpf/scheduler.h"

enum { LSX_CPUS = 2, BE = LSX_CPUS, ACTORS, STEPS = 400, STORES = 8, NOW = 1000000 };

enum rest { ACTIVE, IDLE, RUNNING, DONE }; /* IDLE: until a kick; DONE: for the rest of the run */

struct store {
	__u32 *word;
	__u32 value;
};

static struct {
	/* The state, which is compared and hashed. */
	struct qos_core core;
	struct qos_shard shard;
	enum rest rest[ACTORS];
	__u64 read[ACTORS]; /* hash of its reads */
	struct store store[ACTORS][STORES];
	__u32 stores[ACTORS];
	bool preempt, wake, timer; /* kicks in flight to the BE CPU */
	bool ls[LSX_CPUS];	   /* whether LSX really runs */
} w;

static struct qos_params params = {.slice_ns = QOS_SLICE_NS, .smt_rule = 1, .cap_mcpu = 3000};
static bool tso;
static __u32 lsx_cpus = 1, switches = 3;
static ucontext_t scheduler, cpu[ACTORS];
static char stack[ACTORS][64 * 1024];
static int self;
static const char *fault;

unsigned int broken;

static void note(__u64 value)
{
	w.read[self] = (w.read[self] ^ (value + 1)) * 0x100000001b3ull;
}

/* forget: its earlier reads no longer matter, only its position does. */
static void forget(__u32 where)
{
	w.read[self] = where;
}

/* step ends a step. Any CPU may be next. */
static void step(void)
{
	note(~1ull);
	swapcontext(&cpu[self], &scheduler);
}

static __u32 load(const __u32 *word)
{
	__u32 i, value = *word;

	for (i = 0; i < w.stores[self]; i++) /* it sees its own stores */
		if (w.store[self][i].word == word)
			value = w.store[self][i].value;
	note(value);
	return value;
}

static void put(__u32 *word, __u32 value)
{
	if (!tso) {
		*word = value;
		return;
	}
	if (w.stores[self] == STORES)
		abort();
	w.store[self][w.stores[self]++] = (struct store){word, value};
}

static void drain(int actor)
{
	*w.store[actor][0].word = w.store[actor][0].value;
	w.stores[actor]--;
	memmove(w.store[actor], w.store[actor] + 1, w.stores[actor] * sizeof(struct store));
	memset(&w.store[actor][w.stores[actor]], 0, sizeof(struct store));
}

static __u32 qos_read(const __u32 *word)
{
	if (word >= &w.core.ls && word <= &w.core.held)
		step();
	return load(word);
}

static __u32 change(__u32 *word, __u32 set, __u32 clear)
{
	__u32 old;

	step();
	old = load(word);
	put(word, (old & ~clear) | set);
	return old;
}

static __u32 qos_set(__u32 *word, __u32 bits)
{
	return change(word, bits, 0);
}

static __u32 qos_clear(__u32 *word, __u32 bits)
{
	return change(word, 0, bits);
}

static __u64 qos_read_time(const __u64 *time)
{
	if (params.hold_ns)
		step();
	note(*time);
	return *time;
}

static void qos_write(__u32 *word, __u32 value)
{
	step();
	put(word, value);
}

static void qos_write_time(__u64 *time, __u64 value)
{
	step();
	*time = value;
}

/* lsx_cpu: LSX starts and stops. Its thread is 0 or 2; the thread of BE is 1. */
static void lsx_cpu(int actor)
{
	__u32 i;

	for (i = 0; i < switches; i++) {
		bool on = i % 2 == 0;
		struct qos_kicks k;

		forget(i);
		step();
		w.ls[actor] = on;
		k = qos_switch(&params, &w.core, 2 * actor, on ? QOS_LSX : QOS_NONE, NOW);
		w.preempt |= k.preempt >> 1 & 1;
		w.wake |= k.wake >> 1 & 1;
	}
	w.rest[actor] = DONE;
	forget(i);
	step();
}

static void rest(enum rest how)
{
	w.rest[BE] = how;
	forget(how);
	step();
	w.rest[BE] = ACTIVE;
	w.preempt = w.wake = w.timer = false;
}

static void be_cpu(int actor)
{
	struct qos_asks a = {.now = NOW, .thread = 1};

	(void)actor;
	for (;;) {
		bool on = w.core.ls; /* in memory, not only in a store buffer */
		enum qos_verdict v;

		a.runs_be = false;
		v = qos_may_run(&params, &w.core, &w.shard, &a);
		if (params.hold_ns && on && !qos_refused(v))
			fault = "hold: BE may run although LSX ran there when it asked";
		if (qos_refused(v)) {
			w.timer = v == QOS_REFUSE_HOLD;
			rest(IDLE);
			continue;
		}
		if (!qos_refused(qos_be_start(&params, &w.core, &w.shard, 1, NOW)))
			rest(RUNNING);
		qos_be_stop(&w.core, &w.shard, 1);
	}
}

static void begin(void)
{
	int i;

	memset(&w, 0, sizeof(w));
	w.shard.limit = 1;
	fault = 0;
	for (i = 0; i < ACTORS; i++) {
		getcontext(&cpu[i]);
		cpu[i].uc_stack.ss_sp = stack[i];
		cpu[i].uc_stack.ss_size = sizeof(stack[i]);
		if (i < BE && i >= (int)lsx_cpus)
			w.rest[i] = DONE;
		makecontext(&cpu[i], (void (*)(void))(i == BE ? be_cpu : lsx_cpu), 1, i);
	}
}

/* able lists the possible next events: a CPU makes a step (0 to 2), or a buffer drains (4 to 6). */
static int able(int *list)
{
	int i, n = 0;

	for (i = 0; i < ACTORS; i++) {
		if (w.rest[i] == ACTIVE || (w.rest[i] == IDLE && w.wake) || (w.rest[i] == RUNNING && w.preempt))
			list[n++] = i;
		if (w.stores[i])
			list[n++] = 4 + i;
	}
	return n;
}

static void happen(int what)
{
	if (what >= 4) {
		drain(what - 4);
		return;
	}
	self = what;
	swapcontext(&scheduler, &cpu[what]);
	if (w.rest[BE] == IDLE) /* the kernel drops a preemption kick to an idle CPU */
		w.preempt = false;
	if (w.rest[BE] == RUNNING)
		w.wake = false;
}

/* settled checks the final state, in which nothing can happen any more. */
static void settled(void)
{
	bool ls = w.ls[0] || w.ls[1];

	if (ls && w.rest[BE] == RUNNING)
		fault = "expel: BE runs beside LSX and no kick will come";
	if (!ls && w.rest[BE] == IDLE && !w.timer)
		fault = "wake-up: BE waits on an idle CPU and no kick will come";
}

/* The states reached so far, by hash. */
static __u64 *states;
static __u64 room = 1 << 16, count;

static bool reached(__u64 hash)
{
	__u64 i, *old = states, n = room;

	if (2 * count >= room || !states) {
		room *= states ? 2 : 1;
		count = 0;
		states = calloc(room, sizeof(*states));
		for (i = 0; old && i < n; i++)
			if (old[i])
				reached(old[i]);
		free(old);
	}
	for (i = hash % room; states[i]; i = (i + 1) % room)
		if (states[i] == hash)
			return true;
	states[i] = hash;
	count++;
	return false;
}

static __u64 hash(void)
{
	const unsigned char *p = (const unsigned char *)&w;
	__u64 h = 0xcbf29ce484222325ull, i;

	for (i = 0; i < sizeof(w); i++)
		h = (h ^ p[i]) * 0x100000001b3ull;
	return h | 1;
}

static int path[STEPS], width[STEPS], taken[STEPS];

/* follow runs one path: first the known choices, then always the first choice. */
static int follow(int known)
{
	int list[2 * ACTORS], n, depth;

	begin();
	for (depth = 0; depth < STEPS; depth++) {
		n = able(list);
		if (!n)
			settled();
		if (!n || fault)
			return depth;
		if (depth >= known) {
			if (reached(hash()))
				return depth;
			path[depth] = 0;
			width[depth] = n;
		}
		taken[depth] = list[path[depth]];
		happen(taken[depth]);
	}
	fault = "the run never settles";
	return depth;
}

static void explain(int depth)
{
	static const char *const names[] = {"lsx0", "lsx2", "be", "", "drain lsx0", "drain lsx2", "drain be"};
	int i;

	printf("BROKEN %s\nafter", fault);
	for (i = 0; i < depth; i++)
		printf(" %s%s", names[taken[i]], i + 1 < depth ? "," : "\n");
}

int main(int argc, char **argv)
{
	static const char *const rules[] = {
#define X(name) #name,
		RULES(X)
#undef X
	};
	__u64 paths = 0;
	int i, j, depth = 0;

	for (i = 1; i + 1 < argc; i += 2) {
		if (!strcmp(argv[i], "-memory"))
			tso = !strcmp(argv[i + 1], "tso");
		else if (!strcmp(argv[i], "-lsx"))
			lsx_cpus = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "-switches"))
			switches = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "-hold"))
			params.hold_ns = atoi(argv[i + 1]);
		else if (!strcmp(argv[i], "-break"))
			for (j = 0; j < BROKEN_RULES; j++)
				broken |= strcmp(rules[j], argv[i + 1]) ? 0 : 1u << j;
	}
	if (lsx_cpus < 1 || lsx_cpus > LSX_CPUS) {
		fprintf(stderr, "usage: %s -memory atomic|tso -lsx 1|2 -switches N -hold NS -break RULE\n", argv[0]);
		return 2;
	}
	for (;;) {
		depth = follow(depth);
		paths++;
		if (fault) {
			explain(depth);
			return 1;
		}
		for (depth--; depth >= 0 && path[depth] + 1 >= width[depth]; depth--)
			;
		if (depth < 0)
			break;
		path[depth++]++;
	}
	printf("states=%llu paths=%llu\n", count, paths);
	return 0;
}
