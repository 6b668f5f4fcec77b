/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
#ifndef TENON_H
#define TENON_H

/*
 * The interface between Tenon's BPF programs and user space. The Go side takes
 * types, sizes and numbers from here (bpf2go), so they have one definition. No
 * struct has hidden padding, because user space reads them from mapped memory.
 */

enum tenon_limit {
	TENON_SLOTS = 256,	/* maximum number of distinct workloads */
	TENON_GROUPS = 4096,	/* maximum number of tracked cgroups */
	TENON_KNOWN = 64,	/* cgroups in the cache of a CPU */
	TENON_RUNS = 64,	/* runs in the history of a CPU */
	TENON_BUCKETS = 29,
	TENON_LEAST_BITS = 8, /* bucket 0 holds waits below 2^8 ns */
};

/* What runs on a CPU. User space assigns the slots from TENON_FIRST to workloads. */
enum tenon_slot {
	TENON_UNTRACKED, /* tasks outside of all tracked cgroups */
	TENON_KERNEL,	 /* kernel threads */
	TENON_IDLE,	 /* the CPU is idle */
	TENON_ELSEWHERE, /* waits on another CPU, or before the history of the CPU */
	TENON_FIRST,
};

enum tenon_class {
	TENON_NONE, /* the idle task */
	TENON_OTHER,
	TENON_SYSTEM,
	TENON_LS, /* waits are recorded */
	TENON_BE,
	TENON_CLASSES = 8, /* a power of two, so that a mask bounds an index */
};

/* The slot and class of a tracked cgroup and all cgroups below it; or of what runs on a CPU. */
struct tenon_group {
	enum tenon_slot slot;
	enum tenon_class class;
};

/* The waits of one slot on one CPU. */
struct tenon_delay {
	__u64 count[TENON_BUCKETS]; /* bucket n: below 2^(n + TENON_LEAST_BITS) ns */
	__u64 sum_ns;
	__u64 idle_ns;	    /* part of the sum: the CPU was idle, or leaving idle */
	__u64 elsewhere_ns; /* part of the sum: the runner is unknown */
};

/* A run of one slot on a CPU. It began at the end of the run before it. */
struct tenon_run {
	__u64 end;
	enum tenon_slot slot;
	__u32 pad;
};

/* The slot of a cgroup, in the cache of a CPU. Valid if generation equals that of the table of groups. */
struct tenon_known {
	__u64 cgroup;
	__u32 generation;
	__u16 slot;
	__u16 class;
};

/*
 * One CPU. Only that CPU writes it. Times use the run queue's
 * own clock in ns, which has no meaning outside the kernel.
 */
struct tenon_cpu {
	__u64 since; /* time of the last switch */
	__u64 begin; /* time of the first switch of this epoch */
	__u64 switches;
	__u32 epoch; /* the attachment to which the times belong */
	__u32 head;  /* index of the latest run */
	struct tenon_group running;
	__u64 class_ns[TENON_CLASSES];
	/* Time in the window for which LS ran on one of the two siblings while BE ran on the other. */
	__u64 beside_ns;
	__u64 beside_since; /* start of the window */
	__u32 sibling;	    /* written by user space: number of the sibling + 1; 0: do not watch */
	__u32 pad; /* to a multiple of 128 bytes, so that CPUs share no cache line */
	__u64 slot_ns[TENON_SLOTS];
	struct tenon_run runs[TENON_RUNS];
	struct tenon_known known[TENON_KNOWN];
};

/* The waits of one slot that are too long. They determine when an event is sent. */
struct tenon_alarm {
	__u64 since;   /* start of the window */
	__u64 waits;   /* too long waits in the window; a wait of n * wait_ns counts n times */
	/* Written by user space: */
	__u64 wait_ns; /* a wait of at least this length is too long; 0: no wait is */
	__u64 blamed;  /* all bits: a wait counts for the time for which this slot ran; 0: it does not */
};

struct tenon_event {
	__u64 at_ns;	 /* CLOCK_MONOTONIC */
	__u64 wait_ns;	 /* the last wait that was too long; or the time of LS beside BE */
	__u64 runner_ns; /* the longest run of a blamed slot during the wait; runner is the slot */
	enum tenon_slot runner;
	enum tenon_slot slot;
	__u32 cpu; /* the CPU of the slot */
	__u32 waits; /* too long waits, as in tenon_alarm; 0: the event is about LS beside BE */
};

#endif
