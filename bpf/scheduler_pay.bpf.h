/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The reaper's payments to pods and shards: the quotas of pods, and
 * the shards' parts of the cap of all BE. Part of scheduler.bpf.c.
 */

/* unpark moves parked tasks back if their pod has budget again. */
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
			t->housed = false;
			t->key = qos_key(&s->params, &s->shard.queue, vtime);
			qos_queued(&s->shard.queue, queued(dsq), now);
		} else {
			dsq = DSQ_CPU + cpu;
			qos_queued(q, queued(dsq), now);
			house(s, q, t, cpu);
		}
		scx_move_set_vtime(&it, t->key);
		scx_move_vtime(&it, p, dsq, 0);
	}
	bpf_iter_scx_dsq_destroy(&it);
	bpf_rcu_read_unlock();
	return 0;
}

/* refill gives a pod its quota and returns the number of its parked tasks. */
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

/* cap computes the shard's part of the cap of all BE. */
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
