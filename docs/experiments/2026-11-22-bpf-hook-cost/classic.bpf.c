// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * The usual way to measure run-queue delay, to compare with bpf/delay.bpf.c:
 * hooks on wake-ups and on switches, a clock read in each, a time stamp in the
 * storage of every task, one histogram for all. It does less than the probe:
 * no classes, no cgroups, no runners, no events.
 */
#include "kernel.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} queued SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 64);
	__type(key, __u32);
	__type(value, __u64);
} histogram SEC(".maps");

static __always_inline int enqueue(struct task_struct *p)
{
	__u64 *at = bpf_task_storage_get(&queued, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (at)
		*at = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(on_wakeup, struct task_struct *p)
{
	return enqueue(p);
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(on_wakeup_new, struct task_struct *p)
{
	return enqueue(p);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	__u64 *at, *count, wait;
	__u32 key = 0;

	if (preempt)
		enqueue(prev);
	at = bpf_task_storage_get(&queued, next, 0, 0);
	if (!at || !*at)
		return 0;
	wait = bpf_ktime_get_ns() - *at;
	*at = 0;
#pragma clang loop unroll(full)
	for (int shift = 32; shift; shift >>= 1) {
		if (wait >> shift) {
			wait >>= shift;
			key += shift;
		}
	}
	count = bpf_map_lookup_elem(&histogram, &key);
	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}
