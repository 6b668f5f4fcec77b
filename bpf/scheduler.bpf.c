// SPDX-License-Identifier: GPL-2.0-only
/*
 * The BE scheduler: a partial sched_ext scheduler
 * (SCX_OPS_SWITCH_PARTIAL) for the threads of policy SCHED_EXT, which are
 * the BE threads, and a hook at sched_switch that records where LS runs.
 *
 * LS precedes BE on a CPU because the kernel's fair class is above
 * that of sched_ext. This program decides when BE may run, by the
 * functions of scheduler.h, which have tests outside the kernel.
 * This file and its includes only carry out the decisions.
 *
 * Where BE waits:
 *
 *	the urgent queue of a shard	exiting, or preempted inside the kernel
 *	the queue of a shard		by vtime of pods
 *	the queue of a CPU		may not run everywhere in the shard; the
 *					reaper moves it to CPUs that may run it
 *	the parking queue of a pod	the pod's quota is used up
 *
 * Only ops.dispatch moves a task to its CPU's own queue (SCX_DSQ_LOCAL),
 * after the SMT check. A task preempted by a higher class would return to
 * the head of that queue and resume without a check. Therefore
 * ops.stopping sets its slice to 0, so that the kernel enqueues it again.
 *
 * Only this program of Tenon is GPL-2.0-only, like the kernel interface that
 * it implements. ABI is the form of that interface for which it is compiled.
 */
#include "kernel.h"
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#include "scx.h"
#include "scheduler.h"
#include "scheduler_user.h"

char LICENSE[] SEC("license") = "GPL";

#include "scheduler_state.bpf.h"
#include "scheduler_hook.bpf.h"
#include "scheduler_place.bpf.h"
#include "scheduler_wait.bpf.h"
#include "scheduler_pay.bpf.h"
#include "scheduler_spread.bpf.h"
#include "scheduler_reaper.bpf.h"
#include "scheduler_init.bpf.h"
#include "scheduler_dispatch.bpf.h"

SEC("struct_ops/tenon_select_cpu")
__s32 BPF_PROG(tenon_select_cpu, struct task_struct *p, __s32 prev_cpu, __u64 wake_flags)
{
	struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
	__s32 cpu;

	if (!t)
		return prev_cpu;
	cpu = place_task(p, prev_cpu, false);
	t->target = cpu;
	return cpu < 0 ? prev_cpu : cpu;
}

/* join records that a task enters a queue. */
static __always_inline void join(struct scx_task *t, enum qos_route to, struct qos_queue *q, __u64 dsq, __u64 now)
{
	if (t->preempted && t->route == to && !t->relief)
		qos_back(q, now);
	else
		qos_queued(q, queued(dsq), now);
	t->preempted = false;
	t->route = to;
}

SEC("struct_ops/tenon_enqueue")
void BPF_PROG(tenon_enqueue, struct task_struct *p, __u64 enq_flags)
{
	struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	__s32 cpu = scx_bpf_task_cpu(p), target;
	const volatile struct scx_place *place = place_of(cpu);
	struct scx_shard *s = shard_of(place);
	struct scx_cpu *here = cpu_at(bpf_get_smp_processor_id());
	struct qos_queue *q;
	struct qos_pod *pod;
	__u64 flags = enq_flags, dsq, *vtime;
	bool restricted, preempted;
	__u64 now;

	if (!t || !s || !here) { /* no memory: first on its CPU, when the reaper finds it */
		scx_insert_vtime(p, DSQ_CPU + cpu, QOS_SLICE_NS, 0, enq_flags);
		return;
	}
	preempted = t->preempted && t->waiting;
	now = preempted ? t->waiting : bpf_ktime_get_ns(); /* ops.stopping was a moment ago */
	if (!t->known)
		cover(t, p->cpus_ptr);
	if (!preempted)
		identify(here, t, p);
	pod = pod_at(t->slot);
	if (!pod)
		return; /* cannot be: for the verifier */
	if (!t->waiting)
		t->waiting = now;
	if (!t->unserved)
		t->unserved = now;
	t->urgent = p->flags & PF_EXITING || t->hurried;
	restricted = !(t->shards & 1ull << (place->shard & (SCX_SHARDS - 1))) || immovable(p);
	t->shard = place->shard;
	switch (qos_route(pod, t->urgent, restricted)) {
	case QOS_TO_URGENT:
		count(here, SCX_URGENT);
		if (!restricted) {
			dsq = DSQ_URGENT + place->shard;
			join(t, QOS_TO_URGENT, &s->shard.urgent, dsq, now);
			scx_insert(p, dsq, s->params.slice_ns, flags);
			break;
		}
		/* fall through */
	case QOS_TO_CPU:
		count(here, SCX_PINNED);
		dsq = DSQ_CPU + cpu;
		q = queue_of(cpu);
		if (!q)
			return;
		join(t, QOS_TO_CPU, q, dsq, now);
		house(s, q, t, cpu);
		scx_insert_vtime(p, dsq, s->params.slice_ns, t->key, flags);
		break;
	case QOS_TO_PARK:
		t->route = QOS_TO_PARK;
		t->preempted = false;
		count(here, SCX_EXHAUSTED);
		t->target = -1;
		scx_insert_vtime(p, DSQ_PARK + t->slot, s->params.slice_ns, t->waiting, flags);
		return;
	default:
		dsq = DSQ_SHARD + place->shard;
		join(t, QOS_TO_SHARD, &s->shard.queue, dsq, now);
		vtime = vtime_of(place->shard, t->slot);
		if (!vtime)
			return;
		t->housed = false;
		t->key = qos_key(&s->params, &s->shard.queue, vtime);
		scx_insert_vtime(p, dsq, s->params.slice_ns, t->key, flags);
	}
	target = t->target;
	t->target = -1;
	if (target < 0 && !(enq_flags & SCX_ENQ_WAKEUP)) { /* select_cpu was not asked */
		if (t->route != QOS_TO_CPU)
			target = place_task(p, cpu, false);
		else if (!preempted) /* it is not idle: another task has just taken it */
			target = place_here(cpu);
	}
	if (target >= 0)
		wake(here, target);
}

SEC("struct_ops/tenon_running")
void BPF_PROG(tenon_running, struct task_struct *p)
{
	__u64 now = bpf_ktime_get_ns(), want;
	__s32 cpu = scx_bpf_task_cpu(p); /* another CPU may change what runs there */
	const volatile struct scx_place *place = place_of(cpu);
	struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
	struct scx_shard *s = shard_of(place);
	struct qos_core *core = core_of(place);
	struct scx_cpu *c = cpu_at(cpu);
	struct qos_queue *q;
	struct qos_pod *pod;
	enum qos_verdict v;
	__u32 weight;

	if (!s || !core || !c)
		return;
	count(c, SCX_STARTS);
	v = qos_be_start(&s->params, core, &s->shard, place->thread, now);
	if (!c->taken_at)
		count(c, SCX_RESUMED);
	if (v == QOS_REFUSE_SMT) {
		count(c, SCX_VIOLATIONS);
		if (c->taken_at)
			count(c, SCX_RACES);
	} else if (v == QOS_REFUSE_CAP) {
		c->verdicts[v]++;
	}
	c->taken_at = 0;
	c->expelled_at = 0;
	c->slot = t ? t->slot : 0;
	if (!t)
		return;
	t->relief = v == QOS_RUN_RELIEF;
	t->refused = qos_refused(v);
	q = waited_in(t);
	if (q && !t->relief && !t->refused)
		qos_served(q, t->route == QOS_TO_URGENT ? 0 : t->key, now);
	account_wait(t, now);
	t->ran_from = now;
	t->granted = 0;
	t->hurried = false;
	t->unserved = 0;
	t->preempted = false;
	if (t->refused) {
		scx_set_slice(p, 0);
		scx_kick(cpu, SCX_KICK_PREEMPT);
		return;
	}
	pod = pod_at(t->slot);
	if (!pod)
		return;
	weight = qos_weight(pod->weight, p->scx.weight);
	want = qos_slice(&s->params, weight, v, t->urgent);
	if (!t->urgent && !t->relief) {
		want = t->granted = qos_pod_take(pod, want);
		if (!want)
			scx_kick(cpu, SCX_KICK_PREEMPT);
	}
	scx_set_slice(p, want);
}

SEC("struct_ops/tenon_stopping")
void BPF_PROG(tenon_stopping, struct task_struct *p, bool runnable)
{
	__s32 cpu = scx_bpf_task_cpu(p); /* as in ops.running */
	const volatile struct scx_place *place = place_of(cpu);
	struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);
	struct scx_shard *s = shard_of(place);
	struct qos_core *core = core_of(place);
	struct scx_cpu *c = cpu_at(cpu);
	__u64 now = bpf_ktime_get_ns();

	if (!s || !core || !c)
		return;
	qos_be_stop(core, &s->shard, place->thread);
	if (c->expelled_at) {
		if (c->expelled_at <= now)
			delayed(c, now - c->expelled_at);
		c->expelled_at = 0;
	}
	if (t) {
		settle(t, p, now);
		t->target = -1;
		if (runnable) {
			t->waiting = t->unserved = now;
			t->preempted = p->scx.slice;
		}
	}
	/* Or it would resume from this CPU's own queue without being asked. */
	if (runnable)
		scx_set_slice(p, 0);
}

SEC("struct_ops/tenon_tick")
void BPF_PROG(tenon_tick, struct task_struct *p)
{
	const volatile struct scx_place *place = place_of(bpf_get_smp_processor_id());
	struct scx_shard *s = shard_of(place);
	struct qos_core *core = core_of(place);

	if (s && core && qos_be_tick(&s->params, core, place->thread, bpf_ktime_get_ns()))
		scx_set_slice(p, 0);
}

#if ABI < 619
SEC("struct_ops/tenon_cpu_release")
void BPF_PROG(tenon_cpu_release, __s32 cpu, struct scx_cpu_release_args *args)
{
	struct scx_cpu *c = cpu_at(cpu);

	/* A task that ops.dispatch moved here just before a higher class took the CPU. */
	if (c && c->taken_at) {
		c->taken_at = 0;
		c->counts[SCX_REENQUEUED] += scx_bpf_reenqueue_local();
	}
}
#endif

SEC("struct_ops/tenon_enable")
void BPF_PROG(tenon_enable, struct task_struct *p)
{
	struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t)
		return;
	forget(t);
	cover(t, p->cpus_ptr);
}

SEC("struct_ops/tenon_set_cpumask")
void BPF_PROG(tenon_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	struct scx_task *t = bpf_task_storage_get(&tasks, p, 0, 0);

	if (t)
		cover(t, mask);
}

/* The loader may change flags, timeout_ms and hotplug_seq. */
SEC(".struct_ops.link")
struct sched_ext_ops tenon = {
	.select_cpu = (void *)tenon_select_cpu,
	.enqueue = (void *)tenon_enqueue,
	.dispatch = (void *)tenon_dispatch,
	.tick = (void *)tenon_tick,
	.running = (void *)tenon_running,
	.stopping = (void *)tenon_stopping,
#if ABI < 619
	.cpu_release = (void *)tenon_cpu_release,
#endif
	.enable = (void *)tenon_enable,
	.set_cpumask = (void *)tenon_set_cpumask,
	.init = (void *)tenon_init,
	.exit = (void *)tenon_exit,
	.flags = SCX_OPS_SWITCH_PARTIAL | SCX_OPS_ENQ_LAST | SCX_OPS_ENQ_EXITING,
	.timeout_ms = 30000,
	.name = "tenon",
};
