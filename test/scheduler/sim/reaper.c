// SPDX-License-Identifier: Apache-2.0
/* The timer of scheduler.bpf.c, and the agent's handling of long waits. */
#include "sim.h"

static u32 demand(const struct shard *s)
{
	u32 i, n = s->q.running + s->queue.n + s->urgent.n;

	for (i = s->first; i < s->first + s->cpus; i++)
		n += sim.cpu[i].queue.n;
	return n < s->cpus ? n : s->cpus;
}

/* limit sets the shard's part of the cap. */
static void limit(struct shard *s)
{
	struct qos_demand d = {.cpus_all = sim.cpus};
	u32 i, before = 0;

	for (i = 0; i < sim.shards; i++)
		d.all += demand(&sim.shard[i]);
	for (i = 0; &sim.shard[i] < s; i++)
		before += sim.shard[i].part;
	d.here = demand(s);
	d.cpus_here = s->cpus;
	s->part = qos_cap_part(&sim.p, &d);
	s->q.limit = qos_cap_limit(before, s->part, sim.now);
}

/* company returns the CPU with the fewest waiting tasks that runs BE and may run a task. */
static struct cpu *company(const struct task *t, const struct cpu *c)
{
	struct shard *s = &sim.shard[c->shard];
	struct cpu *best = 0;
	u32 i;

	for (i = s->first; i < s->first + s->cpus; i++) {
		struct cpu *o = &sim.cpu[i];

		if (o != c && o->class == QOS_BE && may_run(t, o) && (!best || o->queue.n < best->queue.n))
			best = o;
	}
	return best;
}

/* move_on moves up to most tasks from the queue of a CPU to idle CPUs, or one to a CPU that runs BE. */
static u32 move_on(struct cpu *c, u32 most, bool stuck, bool deep)
{
	struct task *t, *next;
	u32 looks = deep ? 64 : 8, tries = deep ? 4 : 1, moved = 0;

	for (t = c->queue.first; t && looks-- && (moved < most || stuck); t = next) {
		struct cpu *to, *idles;

		next = t->next;
		if (t->pinned)
			continue;
		to = idles = moved < most ? idle_for(t, c) : 0;
		if (!to && stuck) {
			to = company(t, c);
			stuck = !to;
		}
		if (!to && !--tries)
			break;
		if (!to)
			continue;
		if (to != c) {
			take(t);
			t->cpu = to->id;
			house(t, to);
		}
		if (idles)
			kick(idles, EV_IDLE_KICK);
		moved++;
	}
	return moved;
}

/* spread moves tasks out of the queues of CPUs: see scheduler_spread.bpf.h. */
static void spread(struct shard *s, u32 spare)
{
	u32 i, n, most, from = s->spread_from, misses = 0, moves = 0;
	bool deep = !(++s->passes % 16);

	for (i = 0; i < s->cpus && misses < 2 && moves < 8; i++) {
		struct cpu *c = &sim.cpu[s->first + (from + i) % s->cpus];

		s->spread_from = (from + i + 1) % s->cpus;
		most = c->look.spread < spare ? c->look.spread : spare;
		if (most > 8 - moves)
			most = 8 - moves;
		if (!most && !c->look.stuck)
			continue;
		n = move_on(c, most, c->look.stuck, deep);
		spare -= n < spare ? n : spare;
		moves += n;
		misses += !n;
	}
}

static void cores(struct shard *s)
{
	struct qos_pass pass = qos_pass_begin(&s->q, s->queue.n + s->urgent.n, idle_cores(s), sim.now);
	u32 core, t, spare = 0;

	for (core = s->first / sim.threads; core < s->first / sim.threads + s->cores; core++) {
		struct qos_sight saw = {.all = (1u << sim.threads) - 1};
		struct qos_kicks kicks;

		for (t = 0; t < sim.threads; t++) {
			struct cpu *c = sibling(core, t);

			if (!c->switching)
				qos_repair(&sim.core[core], &s->q, &c->look, t, c->class, c->switches);
			saw.idle |= idle(c) ? 1u << t : 0;
			saw.lent |= c->lent && c->class == QOS_BE ? 1u << t : 0;
			saw.queued |= c->queue.n ? 1u << t : 0;
			saw.bound |= c->queue.n && bound(c->queue.first, c) ? 1u << t : 0;
		}
		kicks = qos_reap_core(&sim.p, &sim.core[core], &s->q, &pass, &saw);
		for (t = 0; t < sim.threads; t++) {
			struct cpu *c = sibling(core, t);
			bool woken = kicks.wake >> t & 1;

			spare += idle(c) && !woken;
			c->look.spread = qos_spread(c->queue.n, woken);
			c->look.stuck = !woken && qos_stuck(&c->service, c->queue.n, c->class == QOS_BE, sim.now);
		}
		carry_out(kicks, core);
	}
	spread(s, spare);
}

static void relief(struct shard *s)
{
	struct qos_relief_pick best = {};
	struct qos_queue *q = 0;
	u32 i;

	if (!qos_relief_due(&s->q, sim.now))
		return;
	for (i = s->first; i < s->first + s->cpus; i++) {
		struct cpu *c = &sim.cpu[i];
		struct {
			struct qos_queue *q;
			u32 waiting;
			bool urgent;
		} from[] = {{&c->service, c->queue.n, false}, {&s->q.queue, s->queue.n, false}, {&s->q.urgent, s->urgent.n, true}};
		u32 j;

		for (j = 0; j < 3; j++) {
			struct qos_relief_pick was = best;

			qos_relief_weigh(&best, from[j].q, from[j].waiting, from[j].urgent, i, idle(c), sim.now);
			if (was.found != best.found || was.cpu != best.cpu || was.since != best.since)
				q = from[j].q;
		}
	}
	if (!best.found)
		return;
	check_relief(s - sim.shard);
	qos_relief_grant(&s->q, &sim.core[sim.cpu[best.cpu].core], q, sim.now);
	kick(&sim.cpu[best.cpu], EV_IDLE_KICK);
}

static void pods(void)
{
	u32 i;

	for (i = 0; i < sim.pods; i++) {
		struct pod *pod = &sim.pod[i];
		u64 refill_at = pod->q.refill_at;
		u32 n;

		qos_pod_refill(&pod->q, sim.now);
		if (refill_at != pod->q.refill_at)
			check_period(i);
		for (n = qos_pod_unpark(&pod->q); n && pod->parked.n; n--) {
			struct task *t = pod->parked.first;

			take(t);
			ops_enqueue(t, t->cpu);
		}
	}
}

void reap(u32 shard)
{
	struct shard *s = &sim.shard[shard];

	limit(s);
	cores(s);
	relief(s);
	if (shard == 0)
		pods();
	check_reaped(shard);
	/* The reaper of the first shard refills the pods of all shards. */
	at(sim.now + qos_reap_ns(demand(s) || shard == 0), EV_REAP, shard, 0);
}

static void to_fair(struct task *t)
{
	const struct shard *s = &sim.shard[t->shard];
	struct cpu *c = &sim.cpu[t->pinned ? t->cpu : s->first + t->id % s->cpus];

	if (!may_run(t, c))
		c = &sim.cpu[t->cpu];
	take(t);
	t->spilled = true;
	t->ran_at_spill = t->ran_ns;
	t->key = sim.now;
	t->cpu = c->id;
	put(&c->spilled, t);
	if (!c->curr || !fair(c->curr))
		schedule(c);
}

static void to_ext(struct task *t)
{
	if (t->state == RUNS || !(t->on || t->state == SLEEPS) || t->ran_ns == t->ran_at_spill)
		return;
	t->spilled = false;
	if (t->state == SLEEPS)
		return;
	take(t);
	ops_enqueue(t, t->cpu);
}

/* agent moves tasks that wait too long to the fair class, and back after they have run. */
void agent(void)
{
	u32 i;

	for (i = 0; i < sim.tasks; i++) {
		struct task *t = &sim.task[i];

		if (t->class != QOS_BE)
			continue;
		if (t->spilled)
			to_ext(t);
		else if ((sim.load == STORM || sim.load == KEPT) && t->state == WAITS && t->on && qos_overdue(t->since, sim.now))
			to_fair(t);
		if (t->state == WAITS)
			check_wait(t);
	}
	at(sim.now + 250 * QOS_MS, EV_AGENT, 0, 0);
}
