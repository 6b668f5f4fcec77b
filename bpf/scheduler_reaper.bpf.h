/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The timers: the reaper of each shard, and for each CPU
 * a timer for the end of a hold. Part of scheduler.bpf.c.
 *
 * ops.init starts the timers. It may sleep, so the
 * verifier requires an RCU read lock here.
 */

struct bpf_timer {
	__u64 __opaque[2];
} __attribute__((aligned(8)));

struct scx_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* shards */
	__type(key, __u32);
	__type(value, struct scx_timer);
} reapers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* CPUs */
	__type(key, __u32);
	__type(value, struct scx_timer);
} holds SEC(".maps");

#define CLOCK_MONOTONIC 1
#define BPF_F_TIMER_CPU_PIN 2 /* Linux 6.7 */

#define SWITCH_NS (10 * QOS_US) /* from ops.dispatch to the hook, generously */

static int hold_over(void *map, __u32 *cpu, struct scx_timer *timer)
{
	const volatile struct scx_place *place = place_of(*cpu);
	struct qos_core *core = core_of(place);

	if (core && !qos_read(&core->ls)) /* else they are told when that LSX leaves */
		kick(place->core, 0, qos_read(&core->expelled));
	return 0;
}

/* look_again lets this CPU, which goes idle because of a hold, dispatch again at the end of the hold. */
static __always_inline void look_again(__u32 cpu, __u64 until, __u64 now)
{
	struct scx_timer *t = bpf_map_lookup_elem(&holds, &cpu);

	if (t && until > now)
		bpf_timer_start(&t->timer, until - now, BPF_F_TIMER_CPU_PIN);
}

/*
 * hold_ends sets a timer if LSX leaves this CPU, which now looks for BE. The
 * timer wakes the refused siblings when the hold is over. If they woke at
 * once, as they must without ops.dispatch, each would set its own timer, and
 * do so repeatedly for an LSX thread that sleeps for less than the hold.
 */
static __always_inline void hold_ends(struct scx_cpu *c, struct scx_shard *s, struct qos_core *core, __u32 cpu,
				      __u32 thread, __u64 now)
{
	bool leaves = qos_read(&core->ls) & qos_bit(thread); /* the hook has still to come */
	struct scx_timer *t;

	if (!leaves && !c->left)
		return;
	c->armed = c->left = 0; /* the first also of an LSX that stayed after all */
	if (!s->params.smt_rule || !s->params.hold_ns || !(qos_read(&core->expelled) & ~qos_bit(thread)))
		return;
	t = bpf_map_lookup_elem(&holds, &cpu);
	if (!t)
		return;
	c->armed = leaves;
	bpf_timer_start(&t->timer, s->params.hold_ns + SWITCH_NS, BPF_F_TIMER_CPU_PIN);
}

/* weigh calls qos_relief_weigh and records the picked queue. */
static __always_inline void weigh(struct sweep *w, const struct qos_queue *q, __u32 waiting, enum qos_route from,
				  __u32 cpu, bool idle)
{
	struct qos_relief_pick pick = {};

	qos_relief_weigh(&pick, q, waiting, from == QOS_TO_URGENT, cpu, idle, w->pass.now);
	if (!pick.found)
		return;
	if (w->pick.found && w->pick.since <= pick.since)
		return;
	w->pick = pick;
	w->from = from;
}

/* starving weighs the queues that a CPU could serve. */
__noinline int starving(struct sweep *w, __u32 cpu, __u32 waiting, __u32 idle)
{
	struct scx_shard *s = shard_of(place_of(cpu));
	struct qos_queue *q = queue_of(cpu);

	if (!w || !s || !q)
		return 0;
	weigh(w, &s->shard.urgent, w->urgent, QOS_TO_URGENT, cpu, idle);
	weigh(w, &s->shard.queue, w->waiting, QOS_TO_SHARD, cpu, idle);
	weigh(w, q, waiting, QOS_TO_CPU, cpu, idle);
	return 0;
}

/*
 * class_of returns the class of a task outside of sched_ext. It also
 * reports a stray, which never passes the hook if it is alone on its CPU.
 */
static __noinline enum qos_class class_of(struct scx_cpu *here, struct task_struct *p, __u32 cpu)
{
	struct scx_known *k = group_of(here, p);

	if (k->class != QOS_BE)
		return k->class;
	if (!(p->flags & PF_EXITING))
		stray(here, p, k->cgroup, cpu);
	return QOS_NORMAL;
}

/* The function runs returns the class of the task on a CPU. */
__noinline int runs(__u32 cpu)
{
	struct scx_cpu *here = cpu_at(bpf_get_smp_processor_id());
	enum qos_class is = QOS_NONE;
	struct task_struct *p;

	bpf_rcu_read_lock();
	p = scx_curr(cpu);
	if (p && p->pid) {
		is = QOS_NORMAL;
		if (p->policy == SCHED_EXT)
			is = QOS_BE;
		else if (here && !(p->flags & PF_KTHREAD))
			is = class_of(here, p, cpu);
	}
	bpf_rcu_read_unlock();
	return is;
}

/* repair corrects the bits of a CPU in its core's words. */
__noinline int repair(__u32 cpu)
{
	const volatile struct scx_place *place = place_of(cpu);
	struct qos_look *look = bpf_map_lookup_elem(&looks, &cpu);
	struct scx_shard *s = shard_of(place);
	struct qos_core *core = core_of(place);
	struct scx_cpu *c = cpu_at(cpu);

	if (look && core && c && s &&
	    qos_repair(core, &s->shard, look, place->thread, runs(cpu), c->counts[SCX_SWITCHES]))
		s->repaired++;
	return 0;
}

/* The state of a core during a pass. */
struct sight {
	struct qos_sight of;
	struct qos_kicks kicks;
};

/* reap_thread calls qos_reap_thread for one thread of a core, and counts what remains for spread. */
__noinline int reap_thread(struct sweep *w, struct sight *saw, __u32 shard, __u32 core, __u32 thread)
{
	__u32 cpu = siblings[core & (SCX_CPUS - 1)].cpu[thread & (QOS_THREADS - 1)];
	struct qos_look *look = bpf_map_lookup_elem(&looks, &cpu);
	struct scx_shard *s = shard_at(shard);
	struct qos_core *c = core_at(core);
	bool woken;

	if (!w || !saw || !s || !c || !look || !(saw->of.all & qos_bit(thread)))
		return 0;
	qos_reap_thread(&s->params, c, &s->shard, &w->pass, &saw->kicks, &saw->of, thread);
	woken = saw->kicks.wake & qos_bit(thread);
	if (saw->of.idle & qos_bit(thread) && !woken)
		w->spare++;
	if (look->spread)
		look->spread = qos_spread(look->spread, woken);
	if (woken)
		look->stuck = 0;
	return 0;
}

/* sweep_core examines the threads of a core and carries out the decisions. */
__noinline int sweep_core(struct sweep *w, __u32 shard, __u32 core)
{
	const volatile struct scx_siblings *sib = &siblings[core & (SCX_CPUS - 1)];
	struct scx_shard *s = shard_at(shard);
	struct sight saw = {.of.all = sib->threads};
	__u32 t;

	if (!w || !s)
		return 0;
	each_below (t, QOS_THREADS) {
		__u32 cpu = sib->cpu[t & (QOS_THREADS - 1)], bit = qos_bit(t), n;
		struct qos_look *look = bpf_map_lookup_elem(&looks, &cpu);
		struct scx_cpu *c = cpu_at(cpu);
		struct qos_queue *q;

		if (!(saw.of.all & bit) || !c || !look)
			continue;
		n = queued(DSQ_CPU + cpu);
		w->pinned += n;
		look->spread = n;
		look->stuck = 0;
		if (c->class == QOS_NONE)
			saw.of.idle |= bit;
		if (c->class == QOS_BE && c->lent)
			saw.of.lent |= bit;
		if (n) {
			saw.of.queued |= bit;
			if (saw.of.idle & bit && s->params.headroom && bound(cpu))
				saw.of.bound |= bit;
			q = queue_of(cpu);
			look->stuck = q && qos_stuck(q, n, c->class == QOS_BE, w->pass.now);
			w->stuck += look->stuck;
		}
		if (w->repair)
			repair(cpu);
		if (w->relief)
			starving(w, cpu, n, c->class == QOS_NONE);
	}
	each_below (t, QOS_THREADS)
		reap_thread(w, &saw, shard, core, t);
	if (saw.kicks.preempt | saw.kicks.wake) {
		s->woken += __builtin_popcount(saw.kicks.wake);
		s->stopped += __builtin_popcount(saw.kicks.preempt);
		kick(core, saw.kicks.preempt, saw.kicks.wake);
	}
	return 0;
}

/* relieve gives the longest starving queue a CPU for a short time. */
__noinline int relieve(__u32 cpu, __u32 from, __u64 now)
{
	const volatile struct scx_place *place = place_of(cpu);
	struct scx_shard *s = shard_of(place);
	struct qos_core *core = core_of(place);
	struct qos_queue *q = queue_of(cpu);

	if (!core || !q || !s)
		return 0;
	if (from == QOS_TO_URGENT)
		q = &s->shard.urgent;
	else if (from == QOS_TO_SHARD)
		q = &s->shard.queue;
	qos_relief_grant(&s->shard, core, q, now);
	s->relieved++;
	scx_kick(cpu, SCX_KICK_IDLE);
	return 0;
}

/* reap makes one pass over a shard. */
__noinline int reap(__u32 shard, __u64 now)
{
	const volatile struct scx_range *r = &ranges[shard & (SCX_SHARDS - 1)];
	struct scx_shard *s = shard_at(shard);
	struct sweep w = {};
	__u32 i;

	if (!s)
		return 0;
	s->seen_at = now;
	s->passes++;
	s->params = params;
	s->params.headroom = qos_headroom(r->cores, headroom);
	w.waiting = queued(DSQ_SHARD + shard);
	w.urgent = queued(DSQ_URGENT + shard);
	w.pass = qos_pass_begin(&s->shard, w.waiting + w.urgent, s->params.headroom ? idle_cores(shard) : r->cores, now);
	w.repair = !(s->passes % 8);
	w.relief = qos_relief_due(&s->shard, now);
	each_below (i, r->cores)
		sweep_core(&w, shard, r->first_core + i);
	if (w.pinned && (w.spare || w.stuck))
		spread(&w, shard);
	s->queued = w.waiting;
	s->urgent = w.urgent;
	s->pinned = w.pinned;
	s->demand = qos_read(&s->shard.running) + w.waiting + w.urgent + w.pinned;
	cap(shard, now);
	if (w.pick.found)
		relieve(w.pick.cpu, w.from, now);
	if (s->hurried || (w.waiting && !(s->passes % EXPEDITE_PASSES)))
		expedite(shard, now);
	if (now >= s->scan_at)
		scan(shard, now);
	return s->demand;
}

static int reaper(void *map, __u32 *key, struct scx_timer *timer)
{
	static char silent[] = "the owner is silent", stuck[] = "a thread waits for too long";
	__u64 now = bpf_ktime_get_ns();
	unsigned long long none = 0;
	int demand;

	if (!attached_now)
		return 0;
	demand = reap(*key, now);
	if (hopeless_at) /* by ourselves rather than by the kernel's watchdog */
		scx_bpf_exit_bstr(SCX_HOPELESS, stuck, &none, 0);
	if (!*key) {
		pay(now);
		if (now > beat_ns && now - beat_ns > silence_ns)
			scx_bpf_exit_bstr(SCX_SILENT, silent, &none, 0);
	}
	bpf_timer_start(&timer->timer, qos_reap_ns(demand), 0);
	return 0;
}
