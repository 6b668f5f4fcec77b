// SPDX-License-Identifier: Apache-2.0
/* The event queue, the arguments, and the main loop. */
#include <stdlib.h>
#include <string.h>

#include "sim.h"

struct sim sim;
unsigned int broken;

struct pending {
	u64 when;
	u32 order, what, generation;
	enum event ev;
};

static struct {
	struct pending *heap;
	u32 n, room, order;
} events;

static bool before(const struct pending *a, const struct pending *b)
{
	return a->when < b->when || (a->when == b->when && (int)(a->order - b->order) < 0);
}

void at(u64 when, enum event ev, u32 what, u32 generation)
{
	struct pending p = {.when = when, .order = events.order++, .what = what, .generation = generation, .ev = ev};
	u32 i = events.n++;

	if (events.n > events.room) {
		events.room = 2 * events.room + 1024;
		events.heap = realloc(events.heap, events.room * sizeof(p));
		if (!events.heap)
			abort();
	}
	for (; i && before(&p, &events.heap[(i - 1) / 2]); i = (i - 1) / 2)
		events.heap[i] = events.heap[(i - 1) / 2];
	events.heap[i] = p;
}

static struct pending pop(void)
{
	struct pending top = events.heap[0], last = events.heap[--events.n];
	u32 i = 0, child;

	for (; (child = 2 * i + 1) < events.n; i = child) {
		if (child + 1 < events.n && before(&events.heap[child + 1], &events.heap[child]))
			child++;
		if (!before(&events.heap[child], &last))
			break;
		events.heap[i] = events.heap[child];
	}
	events.heap[i] = last;
	return top;
}

u64 randomly(u64 below)
{
	sim.random ^= sim.random >> 12;
	sim.random ^= sim.random << 25;
	sim.random ^= sim.random >> 27;
	return below ? (sim.random * 2685821657736338717ull >> 11) % below : 0;
}

u64 between(u64 least, u64 most)
{
	double r = randomly(1u << 30) / (double)(1u << 30);

	return least + (u64)((most - least) * r * r * r);
}

bool chance(u32 in_a_million)
{
	return randomly(1000000) < in_a_million;
}

static void run(void)
{
	while (sim.events < sim.limit) {
		struct pending e = pop();

		sim.now = e.when;
		sim.events++;
		switch (e.ev) {
		case EV_WAKE:
			wake(&sim.task[e.what]);
			break;
		case EV_END:
			ended(&sim.cpu[e.what], e.generation);
			break;
		case EV_SWITCH:
			switched(&sim.cpu[e.what]);
			break;
		case EV_TICK:
			ticked(&sim.cpu[e.what], e.generation);
			break;
		case EV_PREEMPT:
		case EV_IDLE_KICK:
			kicked(&sim.cpu[e.what], e.ev);
			break;
		case EV_REAP:
			reap(e.what);
			break;
		case EV_AGENT:
			agent();
			break;
		case EV_PHASE:
			change_load();
			break;
		case EV_WINDOW:
			check_window();
			break;
		case EVENTS:
			break;
		}
	}
}

/* build arranges the CPUs by thread, then by core, then by shard. */
static void build(u32 cores, u32 threads, u32 shards)
{
	u32 i;

	sim.cpus = cores * threads;
	sim.threads = threads;
	sim.shards = shards;
	for (i = 0; i < sim.cpus; i++) {
		struct cpu *c = &sim.cpu[i];

		c->id = i;
		c->core = i / threads;
		c->thread = i % threads;
		c->kept = sim.seed % 2 ? i % 4 == 1 : i % 8 >= 2; /* one of four CPUs, or all but one core of four */
		c->shard = c->core * shards / cores;
		if (!sim.shard[c->shard].cpus++)
			sim.shard[c->shard].first = i;
		sim.shard[c->shard].cores = sim.shard[c->shard].cpus / threads;
	}
	for (i = 0; i < shards; i++) {
		sim.shard[i].q.limit = sim.shard[i].cpus;
		at(QOS_MS + i * QOS_MS / shards, EV_REAP, i, 0);
	}
	at(QOS_MS / 2, EV_PHASE, 0, 0);
	at(QOS_MS / 3, EV_AGENT, 0, 0);
	at(QOS_SEC, EV_WINDOW, 0, 0);
}

static void break_rules(const char *names)
{
	static const char *const rules[] = {
#define X(name) #name,
		RULES(X)
#undef X
	};
	char *copy = strdup(names), *name;
	u32 i;

	for (name = strtok(copy, ","); name; name = strtok(0, ",")) {
		for (i = 0; i < BROKEN_RULES && strcmp(rules[i], name); i++)
			;
		if (i == BROKEN_RULES) {
			fprintf(stderr, "break rule %s: no such rule\n", name);
			exit(2);
		}
		broken |= 1u << i;
	}
	free(copy);
}

int main(int argc, char **argv)
{
	u32 cores = 2, threads = 2, shards = 1, hz = 250;
	int i;

	sim.limit = 200000;
	sim.seed = 1;
	sim.p.hold_ns = QOS_HOLD_NS;
	for (i = 1; i + 1 < argc; i += 2) {
		const char *value = argv[i + 1];

		if (!strcmp(argv[i], "-cores"))
			cores = atoi(value);
		else if (!strcmp(argv[i], "-threads"))
			threads = atoi(value);
		else if (!strcmp(argv[i], "-shards"))
			shards = atoi(value);
		else if (!strcmp(argv[i], "-hz"))
			hz = atoi(value);
		else if (!strcmp(argv[i], "-hold-us"))
			sim.p.hold_ns = atoi(value) * QOS_US;
		else if (!strcmp(argv[i], "-events"))
			sim.limit = strtoull(value, 0, 10);
		else if (!strcmp(argv[i], "-seed"))
			sim.seed = strtoull(value, 0, 10);
		else if (!strcmp(argv[i], "-load"))
			sim.load = !strcmp(value, "steady") ? STEADY : !strcmp(value, "beside") ? BESIDE : !strcmp(value, "kept") ? KEPT : STORM;
		else if (!strcmp(argv[i], "-break"))
			break_rules(value);
		else
			i = argc + 1;
	}
	if (i != argc || !cores || !threads || threads > QOS_THREADS || cores * threads > CPUS || !shards || shards > SHARDS ||
	    cores % shards || !hz) {
		fprintf(stderr, "usage: %s -cores N -threads N -shards N -load storm|beside|kept|steady -events N -seed N -hz N "
				"-hold-us N -break RULE,RULE\n", argv[0]);
		return 2;
	}
	sim.random = sim.seed * 0x9e3779b97f4a7c15ull + 1;
	sim.tick_ns = QOS_SEC / hz;
	sim.p.slice_ns = QOS_SLICE_NS;
	sim.p.smt_rule = 1;
	build(cores, threads, shards);
	sim.p.cap_mcpu = sim.cpus * 1000;
	make_load();
	run();
	return check_end();
}
