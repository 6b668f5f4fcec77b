// SPDX-License-Identifier: Apache-2.0
/* The part of the kernel that a partial sched_ext scheduler depends on. */
#include "sim.h"

#define FAIR_TURN (3 * QOS_MS)
#define SPILLED_TURN QOS_MS
#define SPILLED_GAP (300 * QOS_MS) /* what weight 3 gets beside a fair task that never sleeps */

void put(struct list *l, struct task *t)
{
	struct task *p = l->last;

	while (p && p->key > t->key)
		p = p->prev;
	t->on = l;
	t->put_at = sim.now;
	t->prev = p;
	t->next = p ? p->next : l->first;
	if (t->next)
		t->next->prev = t;
	else
		l->last = t;
	if (p)
		p->next = t;
	else
		l->first = t;
	l->n++;
}

void put_first(struct list *l, struct task *t)
{
	t->on = l;
	t->prev = 0;
	t->next = l->first;
	if (l->first)
		l->first->prev = t;
	else
		l->last = t;
	l->first = t;
	l->n++;
}

void take(struct task *t)
{
	struct list *l = t->on;

	if (t->prev)
		t->prev->next = t->next;
	else
		l->first = t->next;
	if (t->next)
		t->next->prev = t->prev;
	else
		l->last = t->prev;
	t->on = 0;
	l->n--;
}

bool fair(const struct task *t)
{
	return t->class != QOS_BE || t->spilled;
}

bool may_run(const struct task *t, const struct cpu *c)
{
	return t->pinned ? c->id == t->cpu : !(t->restricted && c->kept);
}

/* movable reports whether a task may run on another CPU of the shard. */
bool movable(const struct task *t, const struct cpu *c)
{
	const struct shard *s = &sim.shard[c->shard];
	u32 i;

	for (i = s->first; i < s->first + s->cpus; i++)
		if (i != c->id && may_run(t, &sim.cpu[i]))
			return true;
	return false;
}

/* bound reports whether a task may run on no other core of the shard. */
bool bound(const struct task *t, const struct cpu *c)
{
	const struct shard *s = &sim.shard[c->shard];
	u32 i;

	for (i = s->first; i < s->first + s->cpus; i++)
		if (sim.cpu[i].core != c->core && may_run(t, &sim.cpu[i]))
			return false;
	return true;
}

enum qos_class class_of(const struct task *t)
{
	if (!t)
		return QOS_NONE;
	return t->spilled ? QOS_NORMAL : t->class;
}

bool idle(const struct cpu *c)
{
	return !c->curr && !c->switching;
}

/* pick_fair is the fair class: round robin, and a little time for tasks of very low weight. */
static struct task *pick_fair(struct cpu *c)
{
	if (c->spilled.first && (!c->fair.first || sim.now > c->spilled_at + SPILLED_GAP)) {
		c->spilled_at = sim.now;
		return c->spilled.first;
	}
	return c->fair.first;
}

/* arm_fair sets the end of a fair task's burst or time slice, whichever is first. */
static void arm_fair(struct cpu *c, const struct task *t)
{
	u64 end = t->started + t->left_ns;

	at(end < sim.now + FAIR_TURN ? end : sim.now + FAIR_TURN, EV_END, c->id, ++c->generation);
}

/* schedule picks the next task. The switch takes some time, in which kicks only set a flag. */
void schedule(struct cpu *c)
{
	struct task *prev = c->curr, *next;
	bool goes_on = prev && prev->state == RUNS;

	if (c->switching) {
		c->resched = true;
		return;
	}
	c->resched = false;
	next = pick_fair(c);
	if (goes_on && fair(prev) && !next)
		next = prev;
	if (!next && goes_on && prev->slice)
		next = prev;
	if (!next && !c->local.first) {
		ops_dispatch(c, goes_on ? prev : 0);
		if (goes_on && prev->slice)
			next = prev; /* otherwise SCX_OPS_ENQ_LAST: it must be dispatched again */
	}
	if (!next)
		next = c->local.first;
	if (next && next != prev)
		take(next);
	if (next == prev && (!prev || goes_on)) {
		if (prev && fair(prev))
			arm_fair(c, prev);
		return;
	}
	c->next = next;
	c->switching = true;
	at(sim.now + 200 + randomly(1300), EV_SWITCH, c->id, 0);
}

static void ran(struct cpu *c)
{
	struct task *t = c->curr;
	u64 ns = sim.now - t->started;

	t->left_ns = t->left_ns > ns ? t->left_ns - ns : 1;
	t->slice = t->slice > ns ? t->slice - ns : 0;
	t->ran_ns += ns;
	if (!fair(t))
		ops_stopping(c, t);
	t->started = sim.now;
}

/* put_prev takes the task off its CPU while it is still runnable. */
static void put_prev(struct cpu *c, struct task *t, bool preempted)
{
	t->state = WAITS;
	t->cpu = c->id;
	if (!t->refused)
		t->since = sim.now;
	t->refused = false;
	if (t->spilled) {
		t->key = sim.now;
		put(&c->spilled, t);
	} else if (fair(t)) {
		t->key = sim.now;
		put(&c->fair, t);
	} else if (preempted && t->slice) {
		/*
		 * The kernel puts a preempted task at the head of the CPU's
		 * local queue, from where it would resume. The scheduler takes
		 * it out (reenqueue_local), but sometimes too late.
		 */
		t->in_kernel = chance(100000);
		put_first(&c->local, t);
		if (sim.load != STORM || !chance(20000)) {
			take(t);
			ops_enqueue(t, c->id);
		}
	} else {
		ops_enqueue(t, c->id);
	}
}

/* switched completes a switch. */
void switched(struct cpu *c)
{
	struct task *prev = c->curr, *next = c->next;
	enum qos_class was = class_of(prev), is = class_of(next);

	account(c);
	c->generation++;
	c->tick++;
	c->switches++;
	if (prev && prev->state == RUNS) {
		ran(c);
		put_prev(c, prev, next && fair(next));
	}
	c->curr = next;
	if (next) {
		check_wait(next);
		next->state = RUNS;
		next->cpu = c->id;
		next->started = sim.now;
		if (fair(next)) {
			arm_fair(c, next);
		} else {
			ops_running(c, next);
			at(sim.now + next->left_ns, EV_END, c->id, c->generation);
			at(sim.now + sim.tick_ns - (sim.now + c->id * 7919) % sim.tick_ns, EV_TICK, c->id, c->tick);
		}
	}
	check_switch(c, was, is, next);
	c->switching = false;
	hook(c, is);
	if (c->resched || (c->fair.first && (!next || !fair(next))))
		schedule(c);
}

/* ended: the burst of the task on the CPU is over, or its time slice among fair tasks. */
void ended(struct cpu *c, u32 generation)
{
	struct task *t = c->curr;

	if (generation != c->generation || c->switching)
		return;
	if (sim.now - t->started >= t->left_ns) {
		ran(c);
		t->state = SLEEPS;
		sleep_on(t);
	} else if (fair(t)) {
		if (!c->fair.first && !c->spilled.first) {
			arm_fair(c, t);
			return;
		}
	}
	schedule(c);
}

void ticked(struct cpu *c, u32 generation)
{
	struct task *t = c->curr;

	if (generation != c->tick)
		return;
	at(sim.now + sim.tick_ns, EV_TICK, c->id, generation);
	if (!t || fair(t) || t->state != RUNS)
		return;
	ops_tick(c, t);
	if (sim.now - t->started >= t->slice) {
		t->slice = 0;
		schedule(c);
	}
}

/* kick sends a kick: irq_work, IPI, sometimes a section without preemption; rarely the kick is lost. */
void kick(struct cpu *c, enum event ev)
{
	u64 delay = 2 * QOS_US + randomly(8 * QOS_US);

	if (chance(5000))
		delay += randomly(200 * QOS_US);
	if (ev == EV_PREEMPT && chance(1000)) {
		c->lost++;
		return;
	}
	at(sim.now + delay, ev, c->id, 0);
}

void kicked(struct cpu *c, enum event ev)
{
	if (ev == EV_PREEMPT && c->curr && !fair(c->curr)) {
		c->curr->slice = 0;
		schedule(c);
	} else if (ev == EV_PREEMPT && c->switching) {
		c->resched = true;
	} else if (ev == EV_IDLE_KICK && !c->curr) {
		schedule(c);
	}
}

static u32 load_of(const struct cpu *c)
{
	return c->fair.n + (c->curr && fair(c->curr));
}

/*
 * place_fair is where the fair class wakes a task: on its last CPU or on an
 * idle one. A CPU that runs BE is not idle, only less loaded than others.
 */
static u32 place_fair(const struct task *t)
{
	const struct shard *s = &sim.shard[t->shard];
	u32 i, from = randomly(s->cpus), best = t->cpu;

	if (t->pinned || idle(&sim.cpu[t->cpu]))
		return t->cpu;
	for (i = 0; i < s->cpus; i++) {
		u32 cpu = s->first + (from + i) % s->cpus;

		if (!may_run(t, &sim.cpu[cpu]))
			continue;
		if (idle(&sim.cpu[cpu]) && !sim.cpu[cpu].fair.n)
			return cpu;
		if (load_of(&sim.cpu[cpu]) + 1 < load_of(&sim.cpu[best]))
			best = cpu;
	}
	return best;
}

void wake(struct task *t)
{
	struct cpu *c;

	if (t->state != SLEEPS)
		return;
	t->state = WAITS;
	t->since = sim.now;
	if (fair(t)) {
		c = &sim.cpu[place_fair(t)];
		t->key = sim.now;
		put(t->spilled ? &c->spilled : &c->fair, t);
		if (!c->curr || !fair(c->curr))
			schedule(c);
		return;
	}
	ops_enqueue(t, ops_select_cpu(t));
}
