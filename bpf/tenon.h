/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
#ifndef TENON_H
#define TENON_H

/*
 * What Tenon's BPF programs and user space tell each other. The Go side takes
 * types, sizes and numbers from here (bpf2go), so they are written down once.
 * No struct has hidden padding: user space reads them from mapped memory.
 */

enum tenon_limit {
	TENON_SLOTS = 256,	/* workloads that are told apart */
	TENON_GROUPS = 4096,	/* cgroups that belong to a slot by name */
	TENON_DEPTH = 32,	/* cgroup levels that are searched for one */
	TENON_KNOWN = 64,	/* cgroups whose slot a CPU remembers */
	TENON_RUNS = 64,	/* runs that a CPU remembers */
	TENON_BUCKETS = 29,
	TENON_LEAST_BITS = 8, /* bucket 0 holds waits below 2^8 ns */
};

/* Who runs on a CPU. User space gives out the slots from TENON_FIRST. */
enum tenon_slot {
	TENON_UNTRACKED, /* tasks outside of all tracked cgroups */
	TENON_KERNEL,	 /* kernel threads */
	TENON_IDLE,	 /* nobody */
	TENON_ELSEWHERE, /* waits on another CPU, or before what is remembered */
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

/* What a tracked cgroup, and all below it, belongs to. */
struct tenon_group {
	enum tenon_slot slot;
	enum tenon_class class;
};

/* The waits of one slot on one CPU. */
struct tenon_delay {
	__u64 count[TENON_BUCKETS]; /* bucket n: below 2^(n + TENON_LEAST_BITS) ns */
	__u64 sum_ns;
	__u64 idle_ns;	    /* of it: the CPU was idle, or on its way out of it */
	__u64 elsewhere_ns; /* of it: nobody can be named */
};

/* One slot ran until this time, from the end of the run before. */
struct tenon_run {
	__u64 end;
	enum tenon_slot slot;
	__u32 pad;
};

/* The slot of a cgroup, as long as generation is that of the table. */
struct tenon_known {
	__u64 cgroup;
	__u32 generation;
	__u16 slot;
	__u16 class;
};

/*
 * One CPU. Only that CPU writes it. Times are the run queue's own clock in ns,
 * which has no meaning outside the kernel.
 */
struct tenon_cpu {
	__u64 since; /* of the last switch */
	__u64 begin; /* of the first switch of this epoch */
	__u64 switches;
	__u32 epoch; /* the attachment that the times belong to */
	__u32 head;  /* of runs */
	enum tenon_slot slot;	/* who runs */
	enum tenon_class class; /* and its class */
	__u64 class_ns[TENON_CLASSES];
	/* How long LS ran here or on the sibling while BE ran on the other. */
	__u64 beside_ns;
	__u64 beside_since; /* start of the window */
	__u32 sibling;	    /* written by user space: its number + 1; 0: nobody is watched */
	__u32 pad; /* to a multiple of 128 bytes: no line is shared by CPUs */
	__u64 slot_ns[TENON_SLOTS];
	struct tenon_run runs[TENON_RUNS];
	struct tenon_known known[TENON_KNOWN];
};

/* The waits of one slot that were too long, for the rate of events. */
struct tenon_alarm {
	__u64 since;   /* start of the window */
	__u64 waits;   /* in the window, of so many limits together */
	/* Written by user space: */
	__u64 wait_ns; /* a wait of this length is too long; 0: none is */
	__u64 blamed;  /* all bits: waits count while this slot ran; 0: they do not */
};

struct tenon_event {
	__u64 at_ns;	 /* CLOCK_MONOTONIC */
	__u64 wait_ns;	 /* the wait that was one too many; or for how long LS had BE beside it */
	__u64 runner_ns; /* the longest run of one to blame during it, and whose */
	enum tenon_slot runner;
	enum tenon_slot slot;
	__u32 cpu; /* of the slot */
	__u32 waits; /* too long ones in the window, this one included: limits; 0: no wait, but BE beside it */
};

#endif
