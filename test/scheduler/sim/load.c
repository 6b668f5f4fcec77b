// SPDX-License-Identifier: Apache-2.0
/* The behaviour of the tasks: short bursts, long bursts, tasks that hold CPUs for many seconds. */
#include "sim.h"

static struct task *add(enum qos_class class, enum load load, u32 cpu)
{
	struct task *t = &sim.task[sim.tasks];

	t->id = sim.tasks++;
	t->class = class;
	t->load = load;
	t->cpu = cpu;
	t->shard = sim.cpu[cpu].shard;
	t->nice = 100;
	if (load != HOGS)
		at(sim.now + between(10 * QOS_US, 20 * QOS_MS), EV_WAKE, t->id, 0);
	t->left_ns = QOS_MS;
	return t;
}

static void services(void)
{
	static const enum qos_class classes[] = {QOS_LSX, QOS_LSX, QOS_LS, QOS_NORMAL, QOS_NORMAL};
	u32 cpu;

	for (cpu = 0; cpu < sim.cpus; cpu++) {
		struct task *t = add(classes[sim.cpu[cpu].thread ? randomly(5) : randomly(3)], BURSTS, cpu);

		t->burst_ns = between(200 * QOS_US, sim.load == STEADY ? 5 * QOS_MS : 20 * QOS_MS);
		t->sleep_ns = between(sim.load == STEADY ? 10 * QOS_MS : QOS_MS, 50 * QOS_MS);
		if (chance(300000)) { /* a kernel thread of this CPU */
			t = add(QOS_NORMAL, BURSTS, cpu);
			t->pinned = true;
			t->burst_ns = 100 * QOS_US;
			t->sleep_ns = 20 * QOS_MS;
		}
		if (sim.load != STEADY) {
			t = add(chance(600000) ? QOS_LSX : QOS_NORMAL, HOGS, cpu);
			t->pinned = true;
		}
	}
}

/* Pods with enough tasks to use their shares at all times, one pod that sleeps for long, and one that is pinned. */
static void make_steady(void)
{
	static const u32 weights[] = {50, 100, 200, 400, 400, 100};
	enum { SLEEPER = 4, PINNED };
	u32 pod, cpu, n;

	sim.pods = 6;
	for (pod = 0; pod < sim.pods; pod++) {
		sim.pod[pod].q.weight = weights[pod];
		sim.pod[pod].other = pod >= SLEEPER;
		for (n = 0; n < 2 * sim.cpus; n++) {
			struct task *t;

			cpu = n / 2; /* two tasks of a pod on each: a single one would not wait while it runs */
			t = add(QOS_BE, pod == SLEEPER ? NIGHTS : pod == PINNED ? SPINS : BURSTS, cpu);
			t->pod = pod;
			t->pinned = pod == PINNED;
			t->burst_ns = n % 2 ? 100 * QOS_MS : 10 * QOS_SEC;
			t->sleep_ns = 50 * QOS_US;
		}
	}
}

/* restrict_to keeps some tasks of BE off the kept CPUs, as a cpuset does. */
static void restrict_to(struct task *t, u32 in_a_million)
{
	t->restricted = !t->pinned && chance(in_a_million);
	while (t->restricted && sim.cpu[t->cpu].kept)
		t->cpu--;
	t->shard = sim.cpu[t->cpu].shard;
}

static void make_storm(void)
{
	static const u64 quotas[] = {0, 0, QOS_MS / 10, 10 * QOS_MS, 50 * QOS_MS, 200 * QOS_MS};
	static const u32 restricted[] = {0, 300000, 1000000};
	u32 pod, n, few = sim.load == STORM ? restricted[randomly(3)] : 0;

	sim.pods = sim.load == BESIDE ? 4 : 6; /* relief serves by vtime: a task that is ahead waits for all others */
	for (pod = 0; pod < sim.pods; pod++) {
		u32 tasks = pod == 2 ? (sim.threads == 1 ? 20 : 8) : sim.cpus / 4 + 4;

		sim.pod[pod].q.weight = sim.load == BESIDE ? 100 : between(1, 1000);
		sim.pod[pod].q.quota_ns = sim.load == BESIDE && pod != 2 ? 0 : quotas[pod];
		for (n = 0; n < tasks; n++) {
			struct task *t = add(QOS_BE, chance(300000) ? SPINS : BURSTS, randomly(sim.cpus));

			t->pod = pod;
			t->pinned = sim.load == STORM && chance(200000);
			if (few)
				restrict_to(t, few);
			t->nice = sim.load == BESIDE || chance(800000) ? 100 : between(3, 1000);
			t->burst_ns = between(50 * QOS_US, 50 * QOS_MS);
			t->sleep_ns = between(50 * QOS_US, 100 * QOS_MS);
		}
	}
}

/* Tasks that nearly always compute, more than the CPUs on which they may run. */
static void make_kept(void)
{
	u32 n;

	sim.pods = 1;
	sim.pod[0].q.weight = 100;
	for (n = 0; n < sim.cpus; n++) {
		struct task *t = add(QOS_BE, SPINS, randomly(sim.cpus));

		t->pinned = chance(100000);
		restrict_to(t, 1000000);
	}
}

void make_load(void)
{
	sim.calm = 1;
	services();
	if (sim.load == STEADY)
		make_steady();
	else if (sim.load == KEPT)
		make_kept();
	else
		make_storm();
}

/* sleep_on: the burst of a task is over. Chooses the start and the length of the next one. */
void sleep_on(struct task *t)
{
	u64 pause = between(10 * QOS_US, t->sleep_ns > 20 * QOS_US ? t->sleep_ns : 20 * QOS_US);

	if (t->load == HOGS)
		return;
	t->left_ns = between(20 * QOS_US, t->burst_ns > 40 * QOS_US ? t->burst_ns : 40 * QOS_US);
	t->exits = t->class == QOS_BE && sim.load != STEADY && chance(2000);
	if (t->load == SPINS) {
		t->left_ns = QOS_SEC;
		pause = 10 * QOS_US;
	}
	if (t->load == NIGHTS) {
		t->left_ns = 2 * QOS_SEC;
		pause = 10 * QOS_SEC - sim.now % (10 * QOS_SEC);
	}
	if (t->class != QOS_BE)
		pause *= sim.calm;
	at(sim.now + pause, EV_WAKE, t->id, 0);
}

/* change_load starts another phase: LSX on one thread of each core, or any class on all CPUs, or no load. */
void change_load(void)
{
	u64 last = QOS_SEC + randomly(4 * QOS_SEC);
	u32 i, kind = randomly(6);

	at(sim.now + (kind < 2 ? 2 : 1) * last + 20 * QOS_US, EV_PHASE, 0, 0);
	sim.calm = chance(500000) ? 1 : 1 + randomly(20);
	if (sim.load == STEADY)
		return;
	sim.p.hold_ns = chance(300000) ? 0 : between(50 * QOS_US, QOS_MS);
	sim.p.headroom = qos_headroom(sim.shard[0].cores, chance(500000) ? -1 : (int)randomly(3));
	sim.p.cap_mcpu = sim.load == BESIDE || chance(500000) ? sim.cpus * 1000 : 200 + randomly(sim.cpus * 1000);
	sim.changed = true;
	if (sim.load == BESIDE && sim.threads > 1)
		kind = kind > 3;
	if (kind > 1 || (sim.load == BESIDE && (kind || sim.threads == 1)))
		return;
	if (chance(400000)) /* long enough for a task to starve */
		last = 25 * QOS_SEC;
	for (i = 0; i < sim.tasks; i++) {
		struct task *t = &sim.task[i];

		if (t->load != HOGS || t->state != SLEEPS)
			continue;
		if (kind == 0 && sim.cpu[t->cpu].thread != 0)
			continue;
		t->class = kind == 0 || chance(500000) ? QOS_LSX : QOS_NORMAL;
		t->left_ns = last;
		at(sim.now + 1 + randomly(QOS_MS), EV_WAKE, t->id, 0);
	}
}
