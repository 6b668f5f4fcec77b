/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
#ifndef TENON_KERNEL_H
#define TENON_KERNEL_H

/*
 * The few kernel types that Tenon's programs read, instead of a
 * generated vmlinux.h of several MB. Names and types are the
 * kernel's. The loader finds the offsets of the fields (CO-RE), so
 * unused members are left out and the order of members is irrelevant.
 */

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u32 __wsum;
typedef _Bool bool;

/* Numbers of the user-space interface (linux/bpf.h), which never change. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_SK_STORAGE = 24,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
	BPF_F_NO_PREALLOC = 1 << 0,
	BPF_F_MMAPABLE = 1 << 10,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1 << 0,
};

#define PF_KTHREAD 0x00200000 /* include/linux/sched.h */

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cgroup;

struct kernfs_node {
	__u64 id;
};

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
};

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct task_group {
	struct cgroup_subsys_state css;
};

struct task_struct;
struct rq;

struct cfs_rq {
	unsigned int h_nr_runnable;
	struct rq *rq;
};

struct rq {
	struct task_struct *curr;
	__u64 clock;
	struct cfs_rq cfs;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct sched_info {
	unsigned long pcount;
	unsigned long long run_delay;
	unsigned long long last_queued;
};

struct cpumask {
	unsigned long bits[1];
};

struct sched_ext_entity {
	__u32 flags;
	__u32 weight;
	__u64 slice;
	__u64 dsq_vtime;
};

struct signal_struct {
	unsigned int flags;
};

struct task_struct {
	unsigned int flags;
	int pid;
	int tgid;
	unsigned int policy;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	unsigned short migration_disabled;
	struct sched_entity se;
	struct sched_ext_entity scx;
	struct sched_info sched_info;
	struct task_group *sched_task_group;
	struct css_set *cgroups;
	struct signal_struct *signal;
};

struct sock_common {
	__u16 skc_num; /* the local port */
	volatile unsigned char skc_state;
};

struct sock {
	struct sock_common __sk_common;
};

struct inet_sock {
	struct sock sk;
};

struct inet_connection_sock {
	struct inet_sock icsk_inet;
};

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;	 /* what comes next of the data that is received */
	__u32 write_seq; /* and of the data that is sent */
};

struct sk_buff {
	char cb[48]; /* in TCP: struct tcp_skb_cb */
};

struct tcp_skb_cb {
	__u32 seq;
	__u32 end_seq;
	__u8 tcp_flags; /* since Linux 6.15 two bytes, of which this is the low one */
};

struct msghdr;

#pragma clang attribute pop

#endif
