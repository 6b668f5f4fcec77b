// SPDX-License-Identifier: Apache-2.0
/* The callbacks of scheduler.bpf.c, with arrays for maps and lists for dispatch queues. */
#include "sim.h"

struct cpu *sibling(u32 core, u32 thread)
{
	return &sim.cpu[core * sim.threads + thread];
}

static struct qos_core *core_of(const struct cpu *c)
{
	return &sim.core[c->core];
}

bool alone(const struct cpu *c, bool or_lent)
{
	u32 t;

	for (t = 0; t < sim.threads; t++) {
		const struct cpu *x = sibling(c->core, t);

		if (t != c->thread && !idle(x) && !(or_lent && x->lent && x->class == QOS_BE))
			return false;
	}
	return true;
}

u32 idle_cores(const struct shard *s)
{
	u32 i, n = 0;

	for (i = s->first; i < s->first + s->cpus; i += sim.threads)
		n += idle(&sim.cpu[i]) && alone(&sim.cpu[i], false);
	return n;
}

struct qos_asks asks(const struct cpu *c, bool runs_be)
{
	struct qos_asks a = {
		.now = sim.now,
		.thread = c->thread,
		.alone = alone(c, true),
		.runs_be = runs_be,
	};

	if (sim.p.headroom) {
		a.idle_cores = idle_cores(&sim.shard[c->shard]);
		if (alone(c, false) && !idle(c)) /* it is leaving idle, or is here to ask */
			a.idle_cores++;
	}
	return a;
}

static u32 rank(const struct cpu *c, const struct task *t, bool is_bound)
{
	struct qos_asks a = asks(c, false);

	a.bound = is_bound;
	if (!idle(c))
		return 0;
	return qos_rank(qos_legal(&sim.p, core_of(c), &sim.shard[c->shard].q, &a), core_of(c), &a, c->id == t->cpu);
}

static u32 best_cpu(struct task *t, bool is_bound)
{
	const struct shard *s = &sim.shard[sim.cpu[t->cpu].shard];
	u32 i, best = 0, where = t->cpu;

	if (t->pinned)
		return t->cpu;
	for (i = 0; i < s->cpus; i++) {
		u32 cpu = s->first + (t->cpu + i) % s->cpus;
		u32 r = may_run(t, &sim.cpu[cpu]) ? rank(&sim.cpu[cpu], t, is_bound) : 0;

		if (r > best) {
			best = r;
			where = cpu;
		}
		if (r >= 3)
			break;
	}
	return where;
}

u32 ops_select_cpu(struct task *t)
{
	return best_cpu(t, false);
}

/* idle_for returns the idle CPU that is best for a task in the queue of a CPU, or 0. */
struct cpu *idle_for(struct task *t, const struct cpu *from)
{
	bool is_bound = sim.p.headroom && bound(t, from);
	struct cpu *c = &sim.cpu[best_cpu(t, is_bound)];

	return may_run(t, c) && rank(c, t, is_bound) ? c : 0;
}

static u64 *vtime_of(struct task *t)
{
	return t->pinned || t->restricted ? &t->vtime : &sim.shard[t->shard].vtime[t->pod];
}

static u32 weight_of(const struct task *t)
{
	return qos_weight(sim.pod[t->pod].q.weight, t->nice);
}

static bool urgent(const struct task *t)
{
	return t->exits || t->in_kernel;
}

/* house puts a task into the queue of a CPU. */
void house(struct task *t, struct cpu *c)
{
	struct shard *s = &sim.shard[c->shard];

	t->key = qos_key_here(&sim.p, &s->q.queue, &c->service, &t->vtime, t->home != c->id + 1);
	if (urgent(t))
		t->key = 0;
	t->home = c->id + 1;
	t->from = &c->service;
	qos_queued(t->from, c->queue.n, sim.now);
	put(&c->queue, t);
	account(c);
	t->be_at_put = c->class_ns[QOS_BE];
}

void ops_enqueue(struct task *t, u32 cpu)
{
	struct pod *pod = &sim.pod[t->pod];
	struct cpu *c = &sim.cpu[cpu];
	struct shard *s = &sim.shard[c->shard];
	bool restricted = t->pinned || t->restricted;

	t->shard = c->shard;
	switch (qos_route(&pod->q, urgent(t), restricted)) {
	case QOS_TO_PARK:
		t->key = t->since;
		put(&pod->parked, t);
		return;
	case QOS_TO_URGENT:
		if (!restricted) {
			t->key = sim.now;
			t->from = &s->q.urgent;
			qos_queued(t->from, s->urgent.n, sim.now);
			put(&s->urgent, t);
			break;
		}
		/* fall through */
	case QOS_TO_CPU:
		house(t, c);
		break;
	case QOS_TO_SHARD:
		t->key = qos_key(&sim.p, &s->q.queue, vtime_of(t));
		t->from = &s->q.queue;
		qos_queued(t->from, s->queue.n, sim.now);
		put(&s->queue, t);
		break;
	}
	if (!rank(c, t, false) && !restricted) { /* it is not idle, or may not run BE: choose another */
		t->cpu = cpu;
		c = &sim.cpu[ops_select_cpu(t)];
	}
	if (rank(c, t, false))
		kick(c, EV_IDLE_KICK);
}

/* pay accounts a run, for a task that stops or asks to continue. */
static void pay(struct task *t, u64 ran)
{
	struct pod *pod = &sim.pod[t->pod];

	if (!t->relief && !t->refused)
		qos_fed(t->from, ran, sim.now);
	qos_pod_settle(&pod->q, t->granted, ran);
	if (t->granted > ran)
		pod->granted_ns -= t->granted - ran;
	t->granted = 0;
	qos_charge(vtime_of(t), ran, weight_of(t));
	pod->ran_ns += ran;
}

static u64 head(const struct list *l)
{
	return l->first ? l->first->key : QOS_NOBODY;
}

static bool move(struct cpu *c, struct list *l)
{
	struct task *t = l->first;

	if (!t)
		return false;
	take(t);
	t->slice = sim.p.slice_ns;
	t->dispatched = true;
	put_first(&c->local, t);
	return true;
}

/* steal takes a task from another shard, the nearest first. */
static void steal(struct cpu *c)
{
	u32 i;

	for (i = 1; i < sim.shards; i++) {
		struct shard *s = &sim.shard[(c->shard + i) % sim.shards];

		if (qos_may_steal(&s->q.queue, s->queue.n, sim.now) && move(c, &s->queue))
			return;
	}
}

void ops_dispatch(struct cpu *c, struct task *prev)
{
	struct shard *s = &sim.shard[c->shard];
	enum qos_verdict v;
	struct qos_asks a;
	u64 mine = QOS_NOBODY, here, ours;
	bool own;

	c->wanted_since = 0;
	if (prev && fair(prev))
		prev = 0;
	a = asks(c, prev);
	a.lent = c->lent;
	v = qos_may_run(&sim.p, core_of(c), &s->q, &a);
	own = v == QOS_REFUSE_HEADROOM && ((prev && bound(prev, c)) || (c->queue.first && bound(c->queue.first, c)));
	if (own) {
		a.bound = true;
		v = qos_may_run(&sim.p, core_of(c), &s->q, &a);
	}
	c->lent = own;
	if (v == QOS_REFUSE_HOLD)
		at(core_of(c)->hold_until, EV_IDLE_KICK, c->id, 0);
	if (qos_refused(v))
		return;
	if (!prev && !own)
		check_place(c);
	if (!own && move(c, &s->urgent))
		return;
	if (prev && !urgent(prev)) {
		struct pod *pod = &sim.pod[prev->pod];
		u64 ran = sim.now - prev->started;

		/* Its run is accounted here; a new run starts when it continues. */
		prev->left_ns = prev->left_ns > ran ? prev->left_ns - ran : 1;
		prev->ran_ns += ran;
		prev->started = sim.now;
		pay(prev, ran);
		if (!qos_pod_over(&pod->q))
			mine = qos_key(&sim.p, &s->q.queue, vtime_of(prev));
		if (prev->home)
			qos_continued(&sim.cpu[prev->home - 1].service, mine != QOS_NOBODY ? mine : 0);
	}
	here = head(&c->queue);
	ours = !own ? head(&s->queue) : QOS_NOBODY;
	switch (qos_turn(mine, here, ours)) {
	case QOS_TURN_PREVIOUS:
		prev->slice = qos_slice(&sim.p, weight_of(prev), QOS_RUN, false);
		prev->granted = qos_pod_take(&sim.pod[prev->pod].q, prev->slice);
		prev->slice = prev->granted;
		sim.pod[prev->pod].granted_ns += prev->granted;
		break;
	case QOS_TURN_CPU:
		move(c, &c->queue);
		break;
	case QOS_TURN_SHARD:
		move(c, &s->queue);
		break;
	case QOS_TURN_NOBODY:
		if (!own)
			steal(c);
		break;
	}
}

void ops_running(struct cpu *c, struct task *t)
{
	struct pod *pod = &sim.pod[t->pod];
	enum qos_verdict v = qos_be_start(&sim.p, core_of(c), &sim.shard[c->shard].q, c->thread, sim.now);

	t->granted = 0;
	t->relief = v == QOS_RUN_RELIEF;
	t->refused = qos_refused(v);
	if (qos_refused(v)) {
		t->slice = 0;
		kick(c, EV_PREEMPT);
		return;
	}
	t->slice = qos_slice(&sim.p, weight_of(t), v, urgent(t));
	if (v == QOS_RUN && !urgent(t)) {
		t->granted = qos_pod_take(&pod->q, t->slice);
		t->slice = t->granted;
		t->refused = !t->granted;
		if (t->refused) {
			kick(c, EV_PREEMPT);
			return;
		}
		pod->granted_ns += t->granted;
	}
	if (v == QOS_RUN)
		qos_served(t->from, t->from == &sim.shard[t->shard].q.urgent ? 0 : t->key, sim.now);
	t->in_kernel = false;
}

void ops_stopping(struct cpu *c, struct task *t)
{
	qos_be_stop(core_of(c), &sim.shard[c->shard].q, c->thread);
	pay(t, sim.now - t->started);
}

void ops_tick(struct cpu *c, struct task *t)
{
	if (qos_be_tick(&sim.p, core_of(c), c->thread, sim.now))
		t->slice = 0;
}

void carry_out(struct qos_kicks k, u32 core)
{
	u32 t;

	for (t = 0; t < sim.threads; t++) {
		if (k.preempt >> t & 1)
			kick(sibling(core, t), EV_PREEMPT);
		if (k.wake >> t & 1)
			kick(sibling(core, t), EV_IDLE_KICK);
	}
}

/* distrust: the bits of a core are wrong, and the reaper needs two passes to verify that. */
void distrust(u32 core)
{
	u32 t;

	for (t = 0; t < sim.threads; t++)
		sibling(core, t)->untrue_until = sim.now + QOS_REAP_IDLE_NS + 2 * QOS_REAP_NS;
}

/* hook is the program on sched_switch. In rare cases it misses a switch. */
void hook(struct cpu *c, enum qos_class is)
{
	if (sim.load != STEADY && chance(c->curr && c->curr->load == HOGS ? 50000 : 20)) {
		distrust(c->core);
		c->unseen_since = sim.now;
		return;
	}
	if (c->unseen_since)
		sim.unseen_ns += sim.now - c->unseen_since;
	c->unseen_since = 0;
	c->hook_ns[c->hook_class] += sim.now - c->hook_since;
	c->hook_since = sim.now;
	c->hook_class = is;
	carry_out(qos_switch(&sim.p, core_of(c), c->thread, is, sim.now), c->core);
}
