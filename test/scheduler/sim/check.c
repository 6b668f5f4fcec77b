// SPDX-License-Identifier: Apache-2.0
/* The checks: I1, I2, I5 and I8 of the design, and shares, quotas, cap and headroom. */
#include <stdarg.h>
#include <stdlib.h>

#include "sim.h"

#define KICK_NS (430 * QOS_US) /* a kick arrives during a switch, and a second kick takes effect */
#define RACE_NS (2 * QOS_US)   /* between a decision and the following switch */
#define WINDOW_NS QOS_SEC

static struct {
	u64 broken;
	u64 exposures, exposed_ns, lsx_ns, longest_wait, longest_exposed;
	u64 legal_ns, held_ns, legal_be_ns; /* for the load steady: where BE may run, is held off, runs */
	u64 reliefs;
	u64 window_be_ns;
	u64 core_at[CPUS];
} seen;

void broke(const char *invariant, const char *format, ...)
{
	va_list args;

	if (seen.broken++ > 4)
		return;
	printf("BROKEN %s: at %llu us: ", invariant, sim.now / 1000);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

static bool relieved(const struct cpu *c)
{
	return sim.core[c->core].relief_until + RACE_NS > sim.now;
}

static bool beside_lsx(const struct cpu *c)
{
	u32 t;

	for (t = 0; t < sim.threads; t++)
		if (t != c->thread && sibling(c->core, t)->class == QOS_LSX)
			return true;
	return false;
}

/* account adds the time since the last change of a core. */
void account(struct cpu *changed)
{
	u64 from = seen.core_at[changed->core];
	u32 i, t;

	for (i = 0; i < sim.threads; i++) {
		struct cpu *c = sibling(changed->core, i);
		u64 ns = sim.now - from, held = 0;

		c->class_ns[c->class] += ns;
		if (c->class == QOS_BE)
			seen.window_be_ns += ns;
		if (c->class == QOS_LSX)
			seen.lsx_ns += ns;
		if ((c->class != QOS_BE && c->class != QOS_NONE) || beside_lsx(c))
			continue;
		for (t = 0; t < sim.threads; t++) {
			u64 until = sibling(c->core, t)->lsx_until;

			if (t == i || !until || c->class == QOS_BE || until + sim.p.hold_ns <= from)
				continue;
			until += sim.p.hold_ns;
			held = (until < sim.now ? until : sim.now) - from;
		}
		seen.held_ns += held;
		seen.legal_ns += ns - held;
		if (c->class == QOS_BE)
			seen.legal_be_ns += ns;
	}
	seen.core_at[changed->core] = sim.now;
}

/* check_start checks that BE was allowed on this CPU when it started. */
static void check_start(struct cpu *c)
{
	const struct qos_core *core = &sim.core[c->core];
	u32 t;

	if (relieved(c) || c->untrue_until > sim.now)
		return;
	for (t = 0; t < sim.threads; t++) {
		const struct cpu *x = sibling(c->core, t);

		if (x == c)
			continue;
		if (x->class == QOS_LSX && core->ls >> t & 1 && sim.now - x->lsx_since > RACE_NS)
			broke("I1", "cpu %u starts BE beside LSX that runs for %llu ns", c->id,
			      (sim.now - x->lsx_since));
		if (x->class != QOS_LSX && core->held >> t & 1 && core->hold_until > sim.now + RACE_NS &&
		    x->lsx_until && x->lsx_until + RACE_NS < sim.now)
			broke("hold", "cpu %u starts BE %llu ns after LSX beside it", c->id,
			      (sim.now - x->lsx_until));
	}
}

/* check_place: ops.dispatch gives BE to a CPU that did not run it. Checks that enough idle cores remain for LS. */
void check_place(const struct cpu *c)
{
	const struct shard *s = &sim.shard[c->shard];
	u32 left = idle_cores(s);

	if (relieved(c))
		return;
	if (!alone(c, true)) /* the core is not idle, unless BE that may run nowhere else has it */
		return;
	left -= idle(c) && alone(c, false);
	if (left < sim.p.headroom)
		broke("headroom", "cpu %u is given BE, %u of %u idle cores are left", c->id, left, sim.p.headroom);
}

/* check_exposure measures the time of BE beside LSX on one CPU. */
static void check_exposure(struct cpu *c)
{
	const struct qos_core *core = &sim.core[c->core];
	bool exposed = c->class == QOS_BE && beside_lsx(c);
	u64 since = c->exposed_since, ns, most = KICK_NS;

	if (exposed && !since) {
		c->exposed_since = sim.now;
		c->lost = 0;
		return;
	}
	if (exposed || !since)
		return;
	c->exposed_since = 0;
	if (core->relief_until > sim.now)
		return;
	if (core->relief_until > since) { /* no kick comes at its end, only the tick or the reaper */
		since = core->relief_until;
		c->lost++;
	}
	ns = sim.now - since;
	seen.exposures++;
	seen.exposed_ns += ns;
	if (ns > seen.longest_exposed)
		seen.longest_exposed = ns;
	if (c->lost)
		most += sim.tick_ns;
	if (c->untrue_until > since)
		most += 25 * QOS_MS;
	if (ns > most)
		broke("I1", "cpu %u ran BE beside LSX for %llu ns; %u kicks lost, limit %llu", c->id,
		      ns, c->lost, most);
}

/* check_switch: the CPU has switched to a task of this class. Called before the hook. */
void check_switch(struct cpu *c, enum qos_class was, enum qos_class is, struct task *t)
{
	u32 i;

	c->class = is;
	if (was == QOS_LSX && is != QOS_LSX)
		c->lsx_until = sim.now;
	if (was != QOS_LSX && is == QOS_LSX)
		c->lsx_since = sim.now;
	if (is == QOS_BE && t->dispatched)
		check_start(c);
	if (t)
		t->dispatched = false;
	for (i = 0; i < sim.threads; i++)
		check_exposure(sibling(c->core, i));
}

void check_wait(const struct task *t)
{
	u64 ns = sim.now - t->since, most = 15 * QOS_SEC;

	if (sim.load == STEADY) /* many threads of a light pod share few CPUs */
		most = sim.cpus > 16 ? 5 * QOS_SEC : 3 * QOS_SEC / 2;
	if (t->class != QOS_BE)
		return;
	if (ns > seen.longest_wait)
		seen.longest_wait = ns;
	if (ns > most)
		broke("I2", "BE task %u of pod %u waited %llu ms%s", t->id, t->pod, (ns / QOS_MS),
		      t->pinned ? ", pinned" : "");
}

/* waits_since reports whether a task has been in the list since then. Tasks that only pass through do not count. */
static bool waits_since(const struct list *l, u64 then)
{
	const struct task *t;

	for (t = l->first; t; t = t->next)
		if (t->put_at <= then)
			return true;
	return false;
}

/* movable_since returns a task that has waited since then in the queue of a CPU, and may run on another. */
static const struct task *movable_since(const struct cpu *c, u64 then)
{
	const struct task *t;

	for (t = c->queue.first; t; t = t->next)
		if (t->put_at <= then && movable(t, c))
			return t;
	return 0;
}

/* check_missed: no CPU that may run BE stays idle for long while a task that may run there waits for another CPU. */
static void check_missed(struct cpu *c, bool legal)
{
	const struct shard *s = &sim.shard[c->shard];
	u32 i;

	if (!legal || c->kept) {
		c->missed_since = 0;
		return;
	}
	if (!c->missed_since)
		c->missed_since = sim.now;
	for (i = s->first; i < s->first + s->cpus; i++)
		if (sim.now - c->missed_since > 25 * QOS_REAP_NS && i != c->id &&
		    movable_since(&sim.cpu[i], c->missed_since))
			broke("spread", "cpu %u is idle for %llu us while %u tasks wait for cpu %u", c->id,
			      (sim.now - c->missed_since) / QOS_US, sim.cpu[i].queue.n, i);
}

/* check_stuck: no task that may run on a CPU with BE waits for long for a CPU without. */
static void check_stuck(struct cpu *c)
{
	const struct shard *s = &sim.shard[c->shard];
	const struct task *t = movable_since(c, sim.now);
	bool company = false;
	u32 i;

	for (i = s->first; i < s->first + s->cpus && t; i++)
		company |= sim.cpu[i].class == QOS_BE && may_run(t, &sim.cpu[i]);
	if (c->class == QOS_BE || !company) {
		c->stuck_since = 0;
		return;
	}
	if (!c->stuck_since)
		c->stuck_since = sim.now;
	if (sim.now - c->stuck_since > 200 * QOS_MS && movable_since(c, c->stuck_since))
		broke("stuck", "tasks wait for cpu %u, which runs no BE for %llu ms, while another does", c->id,
		      (sim.now - c->stuck_since) / QOS_MS);
}

/* check_turn: among few tasks of equal weight, each has its turn while BE runs on the CPU. */
static void check_turn(struct cpu *c)
{
	const struct task *t;

	if (sim.load != KEPT)
		return;
	account(c);
	for (t = c->queue.first; t; t = t->next)
		if (c->class_ns[QOS_BE] - t->be_at_put > QOS_SEC)
			broke("turn", "BE task %u waits for cpu %u, on which others of the %u waiting ran for %llu ms", t->id, c->id,
			      c->queue.n, (c->class_ns[QOS_BE] - t->be_at_put) / QOS_MS);
}

/* check_idle: no CPU that may run BE stays idle for more than a few passes while a task waits. */
static void check_idle(struct cpu *c)
{
	const struct shard *s = &sim.shard[c->shard];
	struct qos_asks a = asks(c, false);
	enum qos_verdict v = qos_legal(&sim.p, &sim.core[c->core], &s->q, &a);
	bool legal = idle(c) && v == QOS_RUN && c->untrue_until <= sim.now;

	check_missed(c, legal);
	if (idle(c) && v == QOS_REFUSE_HEADROOM && c->queue.first && bound(c->queue.first, c))
		legal = c->untrue_until <= sim.now;
	if (!legal || !(c->queue.n || (s->queue.n && v == QOS_RUN))) {
		c->wanted_since = 0;
		return;
	}
	if (!c->wanted_since)
		c->wanted_since = sim.now;
	if (sim.now - c->wanted_since > 3 * QOS_REAP_NS &&
	    (waits_since(&s->queue, c->wanted_since) || waits_since(&c->queue, c->wanted_since)))
		broke("wake-up", "cpu %u is idle for %llu us while %u tasks wait", c->id,
		      (sim.now - c->wanted_since) / QOS_US, s->queue.n + c->queue.n);
}

/* check_reaped: after a pass the bits are correct, or have been wrong only for a short time. */
void check_reaped(u32 shard)
{
	const struct shard *s = &sim.shard[shard];
	u32 i;

	for (i = s->first; i < s->first + s->cpus; i++) {
		struct cpu *c = &sim.cpu[i];
		const struct qos_core *core = &sim.core[c->core];

		check_idle(c);
		check_stuck(c);
		check_turn(c);
		if (c->switching)
			continue;
		if ((core->ls >> c->thread & 1) == (c->class == QOS_LSX) && (core->be >> c->thread & 1) == (c->class == QOS_BE)) {
			c->wrong_since = 0;
			continue;
		}
		if (!c->wrong_since)
			c->wrong_since = sim.now;
		distrust(c->core);
		if (sim.now - c->wrong_since > 25 * QOS_MS)
			broke("I5", "cpu %u: bits wrong for %llu ms", i, ((sim.now - c->wrong_since) / QOS_MS));
	}
}

void check_relief(u32 shard)
{
	struct shard *s = &sim.shard[shard];

	seen.reliefs++;
	if (s->relief_at && sim.now - s->relief_at < QOS_PERIOD_NS)
		broke("relief", "shard %u has relief again after %llu us", shard, (sim.now - s->relief_at) / 1000);
	s->relief_at = sim.now;
}

/* check_period: a pod's period ends. The grants may exceed the quota by one minimum slice. */
void check_period(u32 pod)
{
	struct pod *p = &sim.pod[pod];
	u64 quota = p->q.quota_ns < QOS_POD_MIN_NS ? QOS_POD_MIN_NS : p->q.quota_ns;

	if (p->granted_ns > (__s64)(quota + QOS_SLICE_MIN_NS))
		broke("quota", "pod %u was granted %lld us of %llu", pod, p->granted_ns / 1000,
		      quota / 1000);
	p->granted_ns = 0;
}

/* check_window checks the cap, once a second. */
void check_window(void)
{
	u64 most = (u64)sim.p.cap_mcpu * (WINDOW_NS / 1000);
	u32 i;

	for (i = 0; i < sim.cpus; i += sim.threads)
		account(&sim.cpu[i]);
	if (!sim.changed && seen.window_be_ns > most + most / 20 + sim.shards * 100 * QOS_MS)
		broke("cap", "BE ran %llu ms in a second, the cap is %u", (seen.window_be_ns / QOS_MS),
		      sim.p.cap_mcpu);
	seen.window_be_ns = 0;
	sim.changed = false;
	at(sim.now + WINDOW_NS, EV_WINDOW, 0, 0);
}

/* shares_off returns the deviation of the pods' run times from their weights, in percent of the mean. */
static double shares_off(void)
{
	double least = 1e18, most = 0;
	u32 i;

	for (i = 0; i < sim.pods; i++) {
		double part = (double)sim.pod[i].ran_ns / sim.pod[i].q.weight;

		if (sim.pod[i].other)
			continue;
		least = part < least ? part : least;
		most = part > most ? part : most;
	}
	return 100 * (most - least) / (most + least);
}

static void check_steady(void)
{
	double off = shares_off(), used = 100.0 * seen.legal_be_ns / seen.legal_ns;

	printf("shares_off_percent=%.2f legal_used_percent=%.2f held_percent=%.2f\n", off, used,
	       100.0 * seen.held_ns / (seen.held_ns + seen.legal_ns));
	if (off > 4 && sim.now > 5 * QOS_SEC) /* earlier, a few slices make a difference */
		broke("shares", "runs are %.1f %% off the weights", off);
	if (used < 97)
		broke("conserving", "BE ran in %.1f %% of the time that it could", used);
}

/* check_end prints the results and returns 1 if a check failed. */
int check_end(void)
{
	u64 sum = 0, be = 0, hook_be = 0, lsx = 0;
	u32 i, k;

	for (i = 0; i < sim.cpus; i += sim.threads)
		account(&sim.cpu[i]);
	for (i = 0; i < sim.cpus; i++) {
		struct cpu *c = &sim.cpu[i];

		c->hook_ns[c->hook_class] += sim.now - c->hook_since;
		sim.unseen_ns += c->unseen_since ? sim.now - c->unseen_since : 0;
		for (k = 0; k < QOS_CLASSES; k++)
			sum += c->hook_ns[k];
		be += c->class_ns[QOS_BE];
		lsx += c->class_ns[QOS_LSX];
		hook_be += c->hook_ns[QOS_BE];
	}
	printf("events=%llu virtual_s=%.1f be_percent=%.1f lsx_percent=%.1f exposures=%llu exposed_ppm_of_lsx=%.1f "
	       "longest_exposed_us=%.1f longest_wait_ms=%.1f reliefs=%llu\n",
	       sim.events, sim.now / 1e9, 100.0 * be / (sim.now * sim.cpus),
	       100.0 * lsx / (sim.now * sim.cpus), seen.exposures,
	       lsx ? 1e6 * seen.exposed_ns / lsx : 0, seen.longest_exposed / 1e3, seen.longest_wait / 1e6,
	       seen.reliefs);
	if (sim.load == STEADY)
		check_steady();
	if (sum > sim.now * sim.cpus * 1.01 || sum < sim.now * sim.cpus * 0.99 || hook_be > be * 1.01 + sim.unseen_ns ||
	    hook_be + sim.unseen_ns < be * 0.99)
		broke("I8", "the hook counted %.3f s, of which BE %.3f; correct are %.3f and %.3f", sum / 1e9, hook_be / 1e9,
		      sim.now * sim.cpus / 1e9, be / 1e9);
	printf("broken=%llu\n", seen.broken);
	return seen.broken != 0;
}
