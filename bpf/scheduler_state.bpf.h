/* SPDX-License-Identifier: GPL-2.0-only */
/* The BE scheduler's maps and their lookup functions. Part of scheduler.bpf.c. */

/* Numbers of queues. They stay below bit 63, which is reserved for the kernel. */
#define DSQ_SHARD  0x10000ULL
#define DSQ_URGENT 0x20000ULL
#define DSQ_CPU	   0x30000ULL
#define DSQ_PARK   0x40000ULL

/* Constants that user space sets before loading. */
const volatile __u32 cgroup_version = 2; /* version of the hierarchy with the CPU controller */
const volatile __u32 cpu_count = 1;	 /* the highest CPU number plus one */
const volatile __u32 shard_count = 1;
const volatile __u64 silence_ns = 60 * QOS_SEC;
const volatile struct scx_place places[SCX_CPUS];
const volatile struct scx_siblings siblings[SCX_CPUS]; /* by core */
const volatile struct scx_range ranges[SCX_SHARDS];
const volatile __u16 shard_cpus[SCX_CPUS];	     /* the CPUs of a shard are adjacent */
const volatile __u8 near[SCX_SHARDS * SCX_SHARDS]; /* the other shards of each shard, near ones first */

/* Written by user space. */
struct qos_params params;
__s32 headroom = -1; /* as configured, see qos_headroom */
__u32 generation = 1; /* version of the table of groups */
__u32 quota_slots;    /* pods from this number on never had a quota */
__u64 beat_ns;	      /* time of the owner's last heartbeat; CLOCK_MONOTONIC */

/* Written by ops.exit. */
struct scx_end end;

__u32 attached;	   /* number of this attachment */
bool attached_now; /* from ops.init to ops.exit */

/* Unused variables that make bpf2go generate numbers and types. */
const enum scx_limit *limits;
const enum scx_count *counted;
const enum scx_event_kind *kinds;
const struct scx_event *event;
const enum qos_verdict *verdicts;
const enum qos_class *classes;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SCX_GROUPS);
	__type(key, __u64); /* cgroup id: the inode number of its directory */
	__type(value, struct scx_group);
} groups SEC(".maps");

/* Arrays instead of per-CPU arrays, because user space maps them and other CPUs read them. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs */
	__type(key, __u32);
	__type(value, struct scx_cpu);
} cpus SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* CPUs: an upper bound of the number of cores */
	__type(key, __u32);
	__type(value, struct qos_core);
} cores SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* CPUs */
	__type(key, __u32);
	__type(value, struct qos_queue);
} queues SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1); /* CPUs */
	__type(key, __u32);
	__type(value, struct qos_look);
} looks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* shards */
	__type(key, __u32);
	__type(value, struct scx_shard);
} shards SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, SCX_SLOTS); /* times the number of shards */
	__type(key, __u32);		/* shard * SCX_SLOTS + slot */
	__type(value, __u64);
} vtimes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SCX_SLOTS);
	__type(key, __u32);
	__type(value, struct qos_pod);
} pods SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, SCX_SLOTS);
	__type(key, __u32);
	__type(value, struct scx_pod);
} pod_stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
} events SEC(".maps");

/* A thread of policy SCHED_EXT. */
struct scx_task {
	__u64 vtime;	/* vtime of the task itself, for the queue of a CPU */
	__u64 key;	/* place in the queue in which it waits */
	__u64 waiting;	/* start of its wait; 0: it does not wait */
	__u64 unserved; /* time since which it got no CPU from this program; 0: it got one. See forget. */
	__u64 ran_from; /* its run time before this time is accounted for */
	__u64 granted;	/* part of its pod's budget, for this run */
	__u64 shards;	/* bit mask of the shards of which it may use all CPUs */
	__s32 target;	/* the idle CPU that ops.select_cpu claimed, or -1 */
	__u16 slot;
	__u16 shard; /* the shard in whose queue it waits */
	__u16 cpu;   /* the CPU in whose queue it waits, or waited last, and whose time vtime uses */
	__u32 attached; /* number of the attachment in which the other fields were written */
	__u8 route;  /* enum qos_route: its queue */
	bool urgent;
	bool hurried; /* it was preempted inside the kernel, perhaps with a lock */
	bool known;   /* the field shards is valid */
	bool relief;  /* it runs against a rule */
	bool refused; /* it was put on a CPU against a rule, and stops at once */
	bool housed;  /* the field cpu is valid */
	bool preempted; /* a higher class takes the CPU from it at this moment */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct scx_task);
} tasks SEC(".maps");

/* queued returns the number of tasks in a queue. There are none while sched_ext is being unloaded. */
static __always_inline __u32 queued(__u64 dsq)
{
	__s32 n = scx_bpf_dsq_nr_queued(dsq);

	return n > 0 ? n : 0;
}

static __always_inline const volatile struct scx_place *place_of(__s32 cpu)
{
	return &places[cpu & (SCX_CPUS - 1)];
}

static __always_inline struct scx_cpu *cpu_at(__u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

static __always_inline struct scx_shard *shard_at(__u32 shard)
{
	return bpf_map_lookup_elem(&shards, &shard);
}

static __always_inline struct scx_shard *shard_of(const volatile struct scx_place *place)
{
	return shard_at(place->shard);
}

static __always_inline struct qos_core *core_at(__u32 core)
{
	return bpf_map_lookup_elem(&cores, &core);
}

static __always_inline struct qos_core *core_of(const volatile struct scx_place *place)
{
	return core_at(place->core);
}

static __always_inline struct qos_queue *queue_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&queues, &cpu);
}

/* waited_in returns the queue from which a task on a CPU came. */
static __always_inline struct qos_queue *waited_in(const struct scx_task *t)
{
	struct scx_shard *s;

	if (t->route == QOS_TO_CPU)
		return queue_of(t->cpu);
	s = shard_at(t->shard);
	if (!s)
		return 0;
	return t->route == QOS_TO_URGENT ? &s->shard.urgent : &s->shard.queue;
}

/* house puts a task into the queue of a CPU, as far as the task's own fields tell, and sets its place there. */
static __always_inline void house(const struct scx_shard *s, const struct qos_queue *q, struct scx_task *t, __u32 cpu)
{
	bool moved = !t->housed || t->cpu != cpu;

	t->route = QOS_TO_CPU;
	t->cpu = cpu;
	t->housed = true;
	t->key = qos_key_here(&s->params, &s->shard.queue, q, &t->vtime, moved);
	if (t->urgent)
		t->key = 0;
}

static __always_inline struct qos_pod *pod_at(__u32 slot)
{
	return bpf_map_lookup_elem(&pods, &slot);
}

static __always_inline __u64 *vtime_of(__u32 shard, __u32 slot)
{
	__u32 key = shard * SCX_SLOTS + slot;

	return bpf_map_lookup_elem(&vtimes, &key);
}

static __always_inline void count(struct scx_cpu *c, enum scx_count what)
{
	c->counts[what]++;
}

/* wake makes an idle CPU look for work. */
static __always_inline void wake(struct scx_cpu *c, __s32 cpu)
{
	count(c, SCX_KICKS_WAKE);
	scx_kick(cpu, SCX_KICK_IDLE);
}

/*
 * The verifier checks a function that is not static once, instead of once
 * for each path that leads to it. Such a function must return a number.
 */

/* kick sends the kicks that a step of the core protocol requires. */
__noinline int kick(__u32 core, __u32 preempt, __u32 idle)
{
	struct scx_cpu *c = cpu_at(bpf_get_smp_processor_id());
	__u32 t;

	if (!c)
		return 0;
	for (t = 0; t < QOS_THREADS && (preempt | idle) >> t; t++) {
		__s32 cpu = siblings[core & (SCX_CPUS - 1)].cpu[t];

		if (preempt & 1u << t) {
			count(c, SCX_KICKS_PREEMPT);
			scx_kick(cpu, SCX_KICK_PREEMPT);
		} else if (idle & 1u << t) {
			count(c, SCX_KICKS_WAKE);
			scx_kick(cpu, SCX_KICK_IDLE);
		}
	}
	return 0;
}

/* learn finds the class and the slot of a cgroup, which are those of its nearest classified ancestor. */
static __noinline void learn(struct scx_known *k, struct cgroup *cg, __u64 id)
{
	struct scx_group *g = 0;
	__u32 of = generation; /* before the table is read */
	__u64 cgroup = id;
	int i;

	for (i = 0; i < SCX_DEPTH && cg; i++) {
		g = bpf_map_lookup_elem(&groups, &id);
		if (g)
			break;
		cg = BPF_CORE_READ(cg, self.parent, cgroup);
		id = BPF_CORE_READ(cg, kn, id);
	}
	k->class = g ? g->class : QOS_NORMAL;
	k->slot = g ? g->slot & (SCX_SLOTS - 1) : 0;
	k->cgroup = cgroup;
	k->generation = of;
}

/*
 * group_of returns the group of a task's cgroup. On v1 the task
 * group belongs to the cpu hierarchy. On v2 it may belong to an
 * ancestor of the task's cgroup, where the controller is off.
 */
static __always_inline struct scx_known *group_of(struct scx_cpu *c, struct task_struct *p)
{
	struct scx_known *k;
	struct cgroup *cg;
	__u64 id;

	if (cgroup_version == 1)
		cg = p->sched_task_group->css.cgroup;
	else
		cg = p->cgroups->dfl_cgrp;
	id = cg->kn->id; /* 0 in an autogroup, which has no cgroup */
	k = &c->known[id % SCX_KNOWN];
	if (k->cgroup != id || k->generation != generation)
		learn(k, cg, id);
	return k;
}

/* identify finds the pod of a task. */
static __always_inline void identify(struct scx_cpu *c, struct scx_task *t, struct task_struct *p)
{
	t->slot = group_of(c, p)->slot;
}

/*
 * forget clears the state of a task that is not in sched_ext yet.
 * unserved stays, because before 7.1 the kernel's watchdog assumes that
 * a waiting task has waited since it last ran in sched_ext, even if it
 * ran in another class meanwhile. Only a new attachment resets that.
 */
static __always_inline void forget(struct scx_task *t)
{
	__u64 unserved = t->attached == attached ? t->unserved : 0;

	__builtin_memset(t, 0, sizeof(*t));
	t->attached = attached;
	t->unserved = unserved;
	t->target = -1;
}

/* cover determines the shards in which a task may use all CPUs. */
static __noinline void cover(struct scx_task *t, const struct cpumask *mask)
{
	__u64 shards = ~0ull;
	int i;

	each_below (i, cpu_count) {
		const volatile struct scx_place *place = place_of(i);

		if (place->known && !bpf_cpumask_test_cpu(i, mask))
			shards &= ~(1ull << (place->shard & (SCX_SHARDS - 1)));
	}
	t->shards = shards;
	t->known = true;
}

/* immovable reports whether a task must stay on its CPU. This program itself disables migration of the current task. */
static __always_inline bool immovable(struct task_struct *p)
{
	__u32 disabled = p->migration_disabled;

	return disabled > 1 || (disabled == 1 && p != bpf_get_current_task_btf());
}
