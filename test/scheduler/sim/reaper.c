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

static void cores(struct shard *s)
{
	struct qos_pass pass = qos_pass_begin(&s->q, s->queue.n + s->urgent.n, idle_cores(s), sim.now);
	u32 core, t, all = (1u << sim.threads) - 1;

	for (core = s->first / sim.threads; core < s->first / sim.threads + s->cores; core++) {
		u32 idlers = 0, queued = 0;

		for (t = 0; t < sim.threads; t++) {
			struct cpu *c = sibling(core, t);

			if (!c->switching)
				qos_repair(&sim.core[core], &s->q, &c->look, t, c->class, c->switches);
			idlers |= idle(c) ? 1u << t : 0;
			queued |= c->queue.n ? 1u << t : 0;
		}
		carry_out(qos_reap_core(&sim.p, &sim.core[core], &s->q, &pass, all, idlers, queued), core);
	}
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
		else if (sim.load == STORM && t->state == WAITS && t->on && qos_overdue(t->since, sim.now))
			to_fair(t);
		if (t->state == WAITS)
			check_wait(t);
	}
	at(sim.now + 250 * QOS_MS, EV_AGENT, 0, 0);
}
