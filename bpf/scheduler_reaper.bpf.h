/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What runs by timer: the reaper, one for each shard, and for each CPU a look
 * at the end of a hold. Part of scheduler.bpf.c.
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
#define SCAN_MOST 128	/* tasks of a queue that are looked at */

static int hold_over(void *map, __u32 *cpu, struct scx_timer *timer)
{
	scx_bpf_kick_cpu(*cpu, SCX_KICK_IDLE);
	return 0;
}

/* look_again makes this CPU, which goes idle because of a hold, ask again at its end. */
static __always_inline void look_again(__u32 cpu, __u64 until, __u64 now)
{
	struct scx_timer *t = bpf_map_lookup_elem(&holds, &cpu);

	if (t && until > now)
		bpf_timer_start(&t->timer, until - now, BPF_F_TIMER_CPU_PIN);
}

/* overdue tells user space of the tasks of a queue that have waited for very long, and returns the longest wait. */
static __noinline __u64 overdue(struct scx_shard *s, __u64 dsq, __u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u64 oldest = 0;
	__u32 looked = 0;

	bpf_iter_scx_dsq_new(&it, dsq, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
		struct scx_event *e;

		if (looked++ >= SCAN_MOST)
			break;
		if (!t || !t->waiting || t->waiting > now)
			continue;
		if (now - t->waiting > oldest)
			oldest = now - t->waiting;
		if (!qos_overdue(t->waiting, now))
			continue;
		s->long_waits++;
		e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
		if (!e)
			continue;
		__builtin_memset(e, 0, sizeof(*e));
		e->kind = SCX_LONG_WAIT;
		e->pid = p->tgid;
		e->tid = p->pid;
		e->policy = p->policy;
		e->cpu = scx_bpf_task_cpu(p);
		e->pinned = t->route == QOS_TO_CPU;
		e->at_ns = now;
		e->wait_ns = now - t->waiting;
		bpf_ringbuf_submit(e, 0);
	}
	bpf_iter_scx_dsq_destroy(&it);
	return oldest;
}

/* expedite moves tasks that were preempted inside the kernel to the urgent queue. */
static __noinline void expedite(struct scx_shard *s, __u32 shard, __u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u32 looked = 0;

	s->hurried = 0;
	bpf_iter_scx_dsq_new(&it, DSQ_SHARD + shard, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

		if (looked++ >= SCAN_MOST)
			break;
		if (!t || !t->hurried)
			continue;
		qos_queued(&s->shard.urgent, scx_bpf_dsq_nr_queued(DSQ_URGENT + shard), now);
		t->urgent = true;
		t->route = QOS_TO_URGENT;
		scx_move(&it, p, DSQ_URGENT + shard, 0);
	}
	bpf_iter_scx_dsq_destroy(&it);
}

/* unpark moves tasks back whose pod has budget again. */
static __noinline void unpark(__u32 slot, __u32 most, __u64 now)
{
	struct bpf_iter_scx_dsq it;
	struct task_struct *p;
	__u32 moved = 0;

	bpf_iter_scx_dsq_new(&it, DSQ_PARK + slot, 0);
	while ((p = bpf_iter_scx_dsq_next(&it))) {
		struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
		__s32 cpu = scx_bpf_task_cpu(p);
		const struct scx_place *place = place_of(cpu);
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
			qos_queued(&s->shard.queue, scx_bpf_dsq_nr_queued(dsq), now);
		} else {
			dsq = DSQ_CPU + cpu;
			t->route = QOS_TO_CPU;
			vtime = &t->vtime;
			qos_queued(q, scx_bpf_dsq_nr_queued(dsq), now);
		}
		t->key = qos_key(&s->params, &s->shard.queue, vtime);
		scx_move_set_vtime(&it, t->key);
		scx_move_vtime(&it, p, dsq, 0);
	}
	bpf_iter_scx_dsq_destroy(&it);
}

/* refill gives the pods their quotas. */
static __noinline void refill(struct scx_shard *s, __u64 now)
{
	__u32 slot, parked = 0;

	each_below (slot, SCX_SLOTS) {
		struct qos_pod *pod = pod_at(slot);
		struct scx_pod *stats = bpf_map_lookup_elem(&pod_stats, &slot);
		__u32 most, here = scx_bpf_dsq_nr_queued(DSQ_PARK + slot);
		bool due;

		if (!pod || !stats)
			break;
		due = pod->quota_ns && now >= pod->refill_at;
		parked += here;
		if (due && here)
			stats->throttled++;
		qos_pod_refill(pod, now);
		most = qos_pod_unpark(pod);
		if (most && here)
			unpark(slot, most, now);
	}
	s->parked = parked;
}

/* cap gives the shard its part of the cap of all BE. */
static __noinline void cap(__u32 shard, __u64 now)
{
	struct scx_shard *own = shard_at(shard);
	struct qos_demand d = {};
	__u32 before = 0, i;

	if (!own)
		return;
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

/* starving weighs the queues that a CPU could serve. */
static __always_inline void starving(struct sweep *w, struct scx_shard *s, __u32 cpu, __u32 queued, bool idle)
{
	struct qos_queue *q = queue_of(cpu);
	__u64 since = w->pick.since;
	__u32 was = w->pick.cpu;
	bool found = w->pick.found;

	qos_relief_weigh(&w->pick, &s->shard.urgent, w->urgent, true, cpu, idle, w->pass.now);
	if (w->pick.found != found || w->pick.since != since || w->pick.cpu != was)
		w->from = QOS_TO_URGENT;
	since = w->pick.since, was = w->pick.cpu, found = w->pick.found;
	qos_relief_weigh(&w->pick, &s->shard.queue, w->waiting, false, cpu, idle, w->pass.now);
	if (w->pick.found != found || w->pick.since != since || w->pick.cpu != was)
		w->from = QOS_TO_SHARD;
	if (!q)
		return;
	since = w->pick.since, was = w->pick.cpu, found = w->pick.found;
	qos_relief_weigh(&w->pick, q, queued, false, cpu, idle, w->pass.now);
	if (w->pick.found != found || w->pick.since != since || w->pick.cpu != was)
		w->from = QOS_TO_CPU;
}

/* repair sets the bits of a CPU right, if they are wrong. */
static __noinline void repair(struct scx_shard *s, __u32 cpu)
{
	const struct scx_place *place = place_of(cpu);
	struct scx_cpu *here = cpu_at(bpf_get_smp_processor_id()), *c = cpu_at(cpu);
	struct qos_look *look = bpf_map_lookup_elem(&looks, &cpu);
	struct qos_core *core = core_of(place);
	struct task_struct *p = scx_curr(cpu);
	enum qos_class is = QOS_NORMAL;

	if (!p || !here || !c || !look || !core)
		return;
	if (!p->pid)
		is = QOS_NONE;
	else if (p->policy == SCHED_EXT)
		is = QOS_BE;
	else if (!(p->flags & PF_KTHREAD))
		is = group_of(here, p)->class;
	if (qos_repair(core, &s->shard, look, place->thread, is, c->counts[SCX_SWITCHES]))
		s->repaired++;
}

/* sweep goes over one core. */
static __noinline void sweep_core(struct sweep *w, struct scx_shard *s, __u32 core)
{
	const volatile struct scx_siblings *sib = &siblings[core & (SCX_CPUS - 1)];
	struct scx_cpu *here = cpu_at(bpf_get_smp_processor_id());
	struct qos_core *c = core_at(core);
	__u32 idle = 0, queued = 0, t;
	struct qos_kicks k;

	if (!c || !here)
		return;
	for (t = 0; t < QOS_THREADS; t++) {
		__u32 cpu = sib->cpu[t], n;
		struct scx_cpu *one;

		if (!(sib->threads & 1u << t))
			continue;
		one = cpu_at(cpu);
		if (!one)
			continue;
		n = scx_bpf_dsq_nr_queued(DSQ_CPU + cpu);
		if (n)
			queued |= 1u << t;
		w->pinned += n;
		if (one->class == QOS_NONE)
			idle |= 1u << t;
		if (w->repair)
			repair(s, cpu);
		if (w->relief)
			starving(w, s, cpu, n, one->class == QOS_NONE);
	}
	k = qos_reap_core(&s->params, c, &s->shard, &w->pass, sib->threads, idle, queued);
	if (k.preempt | k.wake) {
		s->woken += !!k.wake;
		s->stopped += !!k.preempt;
		kick(here, core, k.preempt, k.wake);
	}
}

/* relieve lets the queue that starves longest have a CPU for a moment. */
static __noinline void relieve(struct sweep *w, struct scx_shard *s, __u64 now)
{
	const struct scx_place *place = place_of(w->pick.cpu);
	struct qos_core *core = core_of(place);
	struct qos_queue *q = &s->shard.queue, *own = queue_of(w->pick.cpu);

	if (!core || !own)
		return;
	if (w->from == QOS_TO_URGENT)
		q = &s->shard.urgent;
	else if (w->from == QOS_TO_CPU)
		q = own;
	qos_relief_grant(&s->shard, core, q, now);
	s->relieved++;
	scx_bpf_kick_cpu(w->pick.cpu, SCX_KICK_IDLE);
}

/* scan looks for long waits in the queues of a shard. */
static __noinline void scan(struct scx_shard *s, __u32 shard, __u64 now)
{
	const volatile struct scx_range *r = &ranges[shard & (SCX_SHARDS - 1)];
	__u64 oldest = 0, ns;
	__u32 i;

	s->scan_at = now + SCAN_NS;
	ns = overdue(s, DSQ_SHARD + shard, now);
	if (ns > oldest)
		oldest = ns;
	ns = overdue(s, DSQ_URGENT + shard, now);
	if (ns > oldest)
		oldest = ns;
	each_below (i, r->cpus) {
		__u32 cpu = shard_cpus[(r->first_cpu + i) & (SCX_CPUS - 1)];

		ns = scx_bpf_dsq_nr_queued(DSQ_CPU + cpu) ? overdue(s, DSQ_CPU + cpu, now) : 0;
		if (ns > oldest)
			oldest = ns;
	}
	if (!shard) { /* the parking queues belong to no shard */
		each_below (i, SCX_SLOTS) {
			ns = scx_bpf_dsq_nr_queued(DSQ_PARK + i) ? overdue(s, DSQ_PARK + i, now) : 0;
			if (ns > oldest)
				oldest = ns;
		}
	}
	s->oldest_ns = oldest;
}

static __noinline void reap(__u32 shard, struct scx_shard *s, __u64 now)
{
	const volatile struct scx_range *r = &ranges[shard & (SCX_SHARDS - 1)];
	struct sweep w = {};
	__u32 i;

	s->seen_at = now;
	s->passes++;
	s->params = params;
	s->params.headroom = qos_headroom(r->cores, headroom);
	w.waiting = scx_bpf_dsq_nr_queued(DSQ_SHARD + shard);
	w.urgent = scx_bpf_dsq_nr_queued(DSQ_URGENT + shard);
	w.pass = qos_pass_begin(&s->shard, w.waiting + w.urgent, s->params.headroom ? idle_cores(shard) : r->cores, now);
	w.repair = !(s->passes % 8);
	w.relief = qos_relief_due(&s->shard, now);
	each_below (i, r->cores)
		sweep_core(&w, s, r->first_core + i);
	s->queued = w.waiting;
	s->urgent = w.urgent;
	s->pinned = w.pinned;
	s->demand = qos_read(&s->shard.running) + w.waiting + w.urgent + w.pinned;
	cap(shard, now);
	if (w.pick.found)
		relieve(&w, s, now);
	if (s->hurried)
		expedite(s, shard, now);
	if (now >= s->scan_at)
		scan(s, shard, now);
}

static int reaper(void *map, __u32 *key, struct scx_timer *timer)
{
	static char silent[] = "the owner is silent";
	__u64 now = bpf_ktime_get_ns(), none = 0;
	struct scx_shard *s = shard_at(*key);

	if (!s)
		return 0;
	reap(*key, s, now);
	if (!*key) {
		refill(s, now);
		if (now > beat_ns && now - beat_ns > silence_ns)
			scx_bpf_exit_bstr(0, silent, &none, 0);
	}
	bpf_timer_start(&timer->timer, qos_reap_ns(s->demand), 0);
	return 0;
}

SEC("struct_ops.s/tenon_init")
__s32 BPF_PROG(tenon_init)
{
	__u32 i;
	__s32 err = 0;

	beat_ns = bpf_ktime_get_ns();
	each_below (i, SCX_SLOTS) {
		err = scx_bpf_create_dsq(DSQ_PARK + i, -1);
		if (err)
			return err;
	}
	each_below (i, cpu_count) {
		struct scx_timer *t = bpf_map_lookup_elem(&holds, &i);

		if (!t)
			return -22;
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
