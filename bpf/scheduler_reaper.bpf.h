/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What runs by timer: the reaper, one for each shard, and for each CPU a look
 * at the end of a hold. Part of scheduler.bpf.c.
 *
 * Timers are started by ops.init, which may sleep, so the verifier wants to see
 * RCU locked here.
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

#define SCAN_NS QOS_SEC /* between looks for long waits */
#define EXPEDITE_PASSES 32 /* of the reaper, between looks for killed tasks */
#define SCAN_MOST 256	/* tasks of a queue that are looked at */
#define HOPELESS_NS (15 * QOS_SEC) /* a wait that no agent has ended */
#define LATE_NS (20 * QOS_SEC) /* the same, if it goes on after another class */
#define ANSWER_NS (4 * QOS_SEC)	/* what the agent may take to answer */

static int hold_over(void *map, __u32 *cpu, struct scx_timer *timer)
{
	scx_kick(*cpu, SCX_KICK_IDLE);
	return 0;
}

/* look_again makes this CPU, which goes idle because of a hold, ask again at its end. */
static __always_inline void look_again(__u32 cpu, __u64 until, __u64 now)
{
	struct scx_timer *t = bpf_map_lookup_elem(&holds, &cpu);

	if (t && until > now)
		bpf_timer_start(&t->timer, until - now, BPF_F_TIMER_CPU_PIN);
}

static __u64 hopeless_at; /* since when this is so; 0: it is not */

/* tell asks user space to take a task out of sched_ext. */
static __always_inline bool tell(__u32 pid, __u32 tid, __u32 cpu, bool pinned, __u64 now, __u64 wait)
{
	struct scx_event *e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);

	if (!e)
		return false;
	__builtin_memset(e, 0, sizeof(*e));
	e->kind = SCX_LONG_WAIT;
	e->pid = pid;
	e->tid = tid;
	e->policy = SCHED_EXT;
	e->cpu = cpu;
	e->pinned = pinned;
	e->at_ns = now;
	e->wait_ns = wait;
	bpf_ringbuf_submit(e, 0);
	return true;
}

/*
 * trapped looks for a task in the CPU's own queue that lost the CPU in the
 * moment when it was taken: it stays there until the other sleeps, which the
 * kernel does not say in all cases. No scan of queues finds it.
 */
__noinline int trapped(__u32 cpu, __u64 now)
{
	struct scx_shard *s = shard_of(place_of(cpu));
	struct scx_cpu *c = cpu_at(cpu);

	if (!c || !s || !c->taken_at || c->class == QOS_BE || !qos_overdue(c->taken_at, now))
		return 0;
	if (!queued(SCX_DSQ_LOCAL_ON | cpu)) {
		c->taken_at = 0;
		return 0;
	}
	s->long_waits++;
	if (tell(c->taken_pid, c->taken_tid, cpu, true, now, now - c->taken_at))
		c->taken_at = now - QOS_SPILL_NS + 2 * QOS_SEC; /* and again then */
	return 0;
}

/* overdue tells user space of the tasks of a queue that have waited for very long, and returns the longest wait. */
__noinline __u64 overdue(__u32 shard, __u64 dsq, __u64 now)
{
	struct scx_shard *s = shard_at(shard);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u64 oldest = 0;
	__u32 looked;

	if (!s || !queued(dsq))
		return 0;
	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, dsq, 0);
	each_below (looked, SCAN_MOST) {
		struct scx_task *t;
		__u64 unserved;

		p = bpf_iter_scx_dsq_next(&it);
		if (!p)
			break;
		t = bpf_task_storage_get(&tasks, p, 0, 0);
		if (!t || !t->waiting || t->waiting > now || !t->unserved || t->unserved > now)
			continue;
		unserved = now - t->unserved;
		if (unserved > oldest)
			oldest = unserved;
		if (!qos_overdue(t->unserved, now))
			continue;
		s->long_waits++;
		tell(p->tgid, p->pid, scx_bpf_task_cpu(p), t->route == QOS_TO_CPU, now, unserved);
		if (now - t->waiting > HOPELESS_NS || (unserved > LATE_NS && now - t->waiting > ANSWER_NS))
			hopeless_at = now;
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return oldest;
}

/*
 * expedite moves tasks of the shard's queue to the urgent one: those that were
 * preempted inside the kernel, and those that were killed, which the kernel
 * does not enqueue anew.
 */
__noinline int expedite(__u32 shard, __u64 now)
{
	struct scx_shard *s = shard_at(shard);
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u32 looked;

	if (!s)
		return 0;
	s->hurried = 0;
	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, DSQ_SHARD + shard, 0);
	each_below (looked, SCAN_MOST) {
		struct scx_task *t;

		p = bpf_iter_scx_dsq_next(&it);
		if (!p)
			break;
		t = bpf_task_storage_get(&tasks, p, 0, 0);
		if (!t || !(t->hurried || p->signal->flags & SIGNAL_GROUP_EXIT))
			continue;
		qos_queued(&s->shard.urgent, queued(DSQ_URGENT + shard), now);
		t->urgent = true;
		t->route = QOS_TO_URGENT;
		scx_move(&it, p, DSQ_URGENT + shard, 0);
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return 0;
}

/* unpark moves tasks back whose pod has budget again. */
__noinline int unpark(__u32 slot, __u32 most, __u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u32 moved = 0;

	bpf_rcu_read_lock();
	bpf_iter_scx_dsq_new(&it, DSQ_PARK + slot, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
		__s32 cpu = scx_bpf_task_cpu(p);
		const volatile struct scx_place *place = place_of(cpu);
		struct scx_shard *s = shard_of(place);
		struct qos_queue *q = queue_of(cpu);
		__u64 dsq, *vtime = vtime_of(place->shard, slot);

		if (!t || !s || !q || !vtime)
			break;
		if (moved++ >= most)
			break;
		t->shard = place->shard;
		if (t->shards & 1ull << (place->shard & (SCX_SHARDS - 1)) && !immovable(p)) {
			dsq = DSQ_SHARD + place->shard;
			t->route = QOS_TO_SHARD;
			qos_queued(&s->shard.queue, queued(dsq), now);
		} else {
			dsq = DSQ_CPU + cpu;
			t->route = QOS_TO_CPU;
			vtime = &t->vtime;
			qos_queued(q, queued(dsq), now);
		}
		t->key = qos_key(&s->params, &s->shard.queue, vtime);
		scx_move_set_vtime(&it, t->key);
		scx_move_vtime(&it, p, dsq, 0);
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return 0;
}

/* refill gives a pod its quota. Returns the number of its parked tasks. */
__noinline int refill(__u32 slot, __u64 now)
{
	struct qos_pod *pod = pod_at(slot);
	struct scx_pod *stats = bpf_map_lookup_elem(&pod_stats, &slot);
	__u32 most, here;

	if (!pod || !stats)
		return 0;
	here = queued(DSQ_PARK + slot);
	if (pod->quota_ns && now >= pod->refill_at && here)
		stats->throttled++;
	qos_pod_refill(pod, now);
	most = qos_pod_unpark(pod);
	if (most && here)
		unpark(slot, most, now);
	return here;
}

/* cap gives the shard its part of the cap of all BE. */
__noinline int cap(__u32 shard, __u64 now)
{
	struct scx_shard *own = shard_at(shard);
	struct qos_demand d = {};
	__u32 before = 0, i;

	if (!own)
		return 0;
	d.here = own->demand;
	d.cpus_here = ranges[shard & (SCX_SHARDS - 1)].cpus;
	each_below (i, shard_count) {
		struct scx_shard *s = shard_at(i);

		if (!s)
			break;
		d.all += s->demand;
		d.cpus_all += ranges[i & (SCX_SHARDS - 1)].cpus;
		if (i < shard)
			before += s->part;
	}
	own->part = qos_cap_part(&params, &d);
	own->shard.limit = qos_cap_limit(before, own->part, now);
	return 0;
}

/* What the passes over the cores of a shard tell each other. */
struct sweep {
	struct qos_pass pass;
	struct qos_relief_pick pick;
	__u32 waiting; /* in the shard's queue, and in the urgent one */
	__u32 urgent;
	__u32 from;    /* enum qos_route: the queue that starves */
	__u32 pinned;  /* tasks in the queues of CPUs */
	bool repair;
	bool relief;
};

/* weigh is qos_relief_weigh, and keeps which queue it is. */
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

/* runs says what is on a CPU. */
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
			is = group_of(here, p)->class;
		if (is == QOS_BE && p->policy != SCHED_EXT)
			is = QOS_NORMAL; /* a stray */
	}
	bpf_rcu_read_unlock();
	return is;
}

/* repair sets the bits of a CPU right, if they are wrong. */
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

/* A core, as the pass over it sees it: masks of threads. */
struct sight {
	struct qos_kicks kicks;
	__u32 all, idle, queued;
};

/* reap_thread decides for one thread of a core. */
__noinline int reap_thread(struct sweep *w, struct sight *saw, __u32 shard, __u32 core, __u32 thread)
{
	struct scx_shard *s = shard_at(shard);
	struct qos_core *c = core_at(core);

	if (w && saw && s && c)
		qos_reap_thread(&s->params, c, &s->shard, &w->pass, &saw->kicks, thread, saw->all, saw->idle,
				saw->queued);
	return 0;
}

/* sweep_core looks at the threads of a core, and does what is decided. */
__noinline int sweep_core(struct sweep *w, __u32 shard, __u32 core)
{
	const volatile struct scx_siblings *sib = &siblings[core & (SCX_CPUS - 1)];
	struct scx_shard *s = shard_at(shard);
	struct sight saw = {.all = sib->threads};
	__u32 t;

	if (!w || !s)
		return 0;
	each_below (t, QOS_THREADS) {
		__u32 cpu = sib->cpu[t & (QOS_THREADS - 1)], bit = qos_bit(t), n;
		struct scx_cpu *c = cpu_at(cpu);

		if (!(saw.all & bit) || !c)
			continue;
		n = queued(DSQ_CPU + cpu);
		w->pinned += n;
		if (n)
			saw.queued |= bit;
		if (c->class == QOS_NONE)
			saw.idle |= bit;
		if (w->repair)
			repair(cpu);
		if (w->relief)
			starving(w, cpu, n, c->class == QOS_NONE);
	}
	each_below (t, QOS_THREADS)
		reap_thread(w, &saw, shard, core, t);
	if (saw.kicks.preempt | saw.kicks.wake) {
		s->woken += !!saw.kicks.wake;
		s->stopped += !!saw.kicks.preempt;
		kick(core, saw.kicks.preempt, saw.kicks.wake);
	}
	return 0;
}

/* relieve lets the queue that starves longest have a CPU for a moment. */
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

/* scan looks for long waits in the queues of a shard. */
__noinline int scan(__u32 shard, __u64 now)
{
	const volatile struct scx_range *r = &ranges[shard & (SCX_SHARDS - 1)];
	struct scx_shard *s = shard_at(shard);
	__u64 oldest, ns;
	__u32 i;

	if (!s)
		return 0;
	s->scan_at = now + SCAN_NS;
	oldest = overdue(shard, DSQ_SHARD + shard, now);
	ns = overdue(shard, DSQ_URGENT + shard, now);
	oldest = ns > oldest ? ns : oldest;
	each_below (i, r->cpus) {
		__u32 cpu = shard_cpus[(r->first_cpu + i) & (SCX_CPUS - 1)];

		trapped(cpu, now);
		ns = overdue(shard, DSQ_CPU + cpu, now);
		oldest = ns > oldest ? ns : oldest;
	}
	each_below (i, shard ? 0 : SCX_SLOTS) { /* the parking queues belong to no shard */
		ns = overdue(shard, DSQ_PARK + i, now);
		oldest = ns > oldest ? ns : oldest;
	}
	s->oldest_ns = oldest;
	return 0;
}

/* reap is a pass over a shard. */
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

/* pay gives all pods their quotas. */
__noinline int pay(__u64 now)
{
	struct scx_shard *s = shard_at(0);
	__u32 slot, parked = 0;

	each_below (slot, quota_slots) /* each costs some 300 instructions in every pass */
		parked += refill(slot, now);
	if (s)
		s->parked = parked;
	return 0;
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

/*
 * clean forgets what an attachment before this one left of a CPU, and of the
 * core of that number. Where LSX runs is the hook's, which runs by now.
 */
__noinline int clean(__u32 cpu)
{
	struct qos_look *look = bpf_map_lookup_elem(&looks, &cpu);
	struct qos_queue *q = queue_of(cpu);
	struct qos_core *core = core_at(cpu);
	struct scx_cpu *c = cpu_at(cpu);

	if (!look || !q || !core || !c)
		return 0;
	__builtin_memset(look, 0, sizeof(*look));
	__builtin_memset(q, 0, sizeof(*q));
	qos_clear(&core->be, ~0u);
	qos_clear(&core->expelled, ~0u);
	qos_write(&core->held, 0);
	qos_write_time(&core->hold_until, 0);
	qos_write_time(&core->relief_until, 0);
	c->refused_at = c->expelled_at = c->taken_at = 0;
	return 0;
}

/* clean_vtime is that for a pod. */
__noinline int clean_vtime(__u32 shard, __u32 slot)
{
	__u64 *vtime = vtime_of(shard, slot);

	if (vtime)
		*vtime = 0;
	return 0;
}

/* clean_shard is that for a shard. */
__noinline int clean_shard(__u32 shard)
{
	struct scx_shard *s = shard_at(shard);
	__u32 slot;

	if (!s)
		return 0;
	each_below (slot, SCX_SLOTS)
		clean_vtime(shard, slot);
	__builtin_memset(&s->shard, 0, sizeof(s->shard));
	s->scan_at = s->oldest_ns = 0;
	s->demand = s->part = s->hurried = s->parked = 0;
	return 0;
}

SEC("struct_ops.s/tenon_init")
__s32 BPF_PROG(tenon_init)
{
	__u32 i;
	__s32 err = 0;

	beat_ns = bpf_ktime_get_ns();
	hopeless_at = 0;
	attached++;
	attached_now = true;
	each_below (i, SCX_SLOTS) {
		err = scx_bpf_create_dsq(DSQ_PARK + i, -1);
		if (err)
			return err;
	}
	each_below (i, cpu_count) {
		struct scx_timer *t = bpf_map_lookup_elem(&holds, &i);

		if (!t)
			return -22;
		clean(i);
		err = scx_bpf_create_dsq(DSQ_CPU + i, -1);
		if (err)
			return err;
		bpf_timer_init(&t->timer, &holds, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&t->timer, hold_over);
	}
	each_below (i, shard_count) {
		struct scx_timer *t = bpf_map_lookup_elem(&reapers, &i);
		struct scx_shard *s = shard_at(i);

		if (!t || !s)
			return -22;
		err = scx_bpf_create_dsq(DSQ_SHARD + i, -1);
		if (!err)
			err = scx_bpf_create_dsq(DSQ_URGENT + i, -1);
		if (err)
			return err;
		clean_shard(i);
		s->params = params;
		s->params.headroom = qos_headroom(ranges[i & (SCX_SHARDS - 1)].cores, headroom);
		s->shard.limit = params.cap_mcpu / 1000;
		bpf_timer_init(&t->timer, &reapers, CLOCK_MONOTONIC);
		bpf_timer_set_callback(&t->timer, reaper);
		err = bpf_timer_start(&t->timer, QOS_REAP_NS, 0);
		if (err)
			return err;
	}
	return 0;
}
