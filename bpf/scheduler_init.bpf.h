/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ops.init and ops.exit: the queues, the timers, and the state
 * that one attachment leaves to the next. Part of scheduler.bpf.c.
 */

/*
 * clean clears the state of a CPU, and of the core with the same number, from
 * an earlier attachment. The bits of LSX stay, because the hook already runs.
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
	c->armed = c->left = c->lent = 0;
	return 0;
}

/* clean_vtime clears the vtime of a pod in a shard. */
__noinline int clean_vtime(__u32 shard, __u32 slot)
{
	__u64 *vtime = vtime_of(shard, slot);

	if (vtime)
		*vtime = 0;
	return 0;
}

/* clean_shard clears the state of a shard. */
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

SEC("struct_ops/tenon_exit")
void BPF_PROG(tenon_exit, struct scx_exit_info *info)
{
	struct scx_event *e;

	attached_now = false;
	end.code = info->exit_code;
	bpf_probe_read_kernel_str(end.reason, sizeof(end.reason), info->reason);
	bpf_probe_read_kernel_str(end.message, sizeof(end.message), info->msg);
	end.kind = info->kind;
	e = bpf_ringbuf_reserve(&events, sizeof(*e), 0);
	if (!e)
		return; /* user space looks at the end now and then */
	__builtin_memset(e, 0, sizeof(*e));
	e->kind = SCX_EXITED;
	e->at_ns = bpf_ktime_get_ns();
	bpf_ringbuf_submit(e, 0);
}
