/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
#ifndef TENON_SCHEDULER_USER_H
#define TENON_SCHEDULER_USER_H

/*
 * The interface between the BE scheduler and user space. The Go side
 * takes types, sizes and numbers from here (bpf2go). No struct has
 * hidden padding, because user space reads them from mapped memory.
 */

enum scx_limit {
	SCX_CPUS = 1024,
	SCX_SHARDS = 64, /* groups of CPUs with separate queues */
	SCX_SLOTS = 256, /* pods; slot 0: tasks without a pod */
	SCX_GROUPS = 8192,
	SCX_DEPTH = 32,	 /* maximum of cgroup levels searched for a group */
	SCX_KNOWN = 64,	 /* cgroups in the cache of a CPU */
	SCX_DELAYS = 24, /* buckets: below 2^(n + 8) ns */
};

/* A classified cgroup. */
struct scx_group {
	enum qos_class class;
	__u32 slot;
};

/* The place of a CPU. Cores of a shard have consecutive numbers, as do its CPUs in shard_cpus. */
struct scx_place {
	__u16 core;
	__u16 shard;
	__u8 thread;
	__u8 node;
	__u16 known; /* 0: the CPU does not exist */
};

/* The CPUs of a core. */
struct scx_siblings {
	__u16 cpu[QOS_THREADS]; /* by thread */
	__u32 threads;		/* bit mask of the existing threads */
};

/* The cores and the CPUs of a shard. */
struct scx_range {
	__u32 first_core, cores;
	__u32 first_cpu, cpus; /* in shard_cpus */
};

enum scx_count {
	SCX_SWITCHES,
	SCX_EXPELS,
	SCX_STARTS,
	SCX_VIOLATIONS,
	SCX_RACES,
	SCX_RESUMED,
	SCX_PREEMPTED,
	SCX_REENQUEUED,
	SCX_EXHAUSTED,
	SCX_URGENT,
	SCX_PINNED,
	SCX_KICKS_PREEMPT,
	SCX_KICKS_WAKE,
	SCX_STRAYS,
	SCX_LOST,
	SCX_COUNTS = 32, /* a power of two */
};

/* A cgroup in the cache of a CPU. It is valid if generation equals that of the table of groups. */
struct scx_known {
	__u64 cgroup;
	__u32 generation;
	__u16 class;
	__u16 slot;
};

/*
 * One CPU. Only that CPU writes it. Times of runs use the run
 * queue's own clock in ns; the other times are CLOCK_MONOTONIC.
 */
struct scx_cpu {
	__u64 since; /* time of the last switch */
	__u32 class; /* enum qos_class of the running task */
	__u32 stray; /* the task is BE by its group, but not in sched_ext */
	__u64 class_ns[QOS_CLASSES];
	__u64 strayed_ns;
	__u64 refused_at; /* time since which the CPU is idle with this verdict: */
	__u32 refused;	  /* enum qos_verdict */
	__u32 slot;	  /* slot of the running BE task */
	__u64 refused_ns[QOS_VERDICTS];
	__u64 verdicts[QOS_VERDICTS]; /* results of ops.dispatch */
	__u64 expelled_at;	      /* time at which BE on this CPU was asked to leave */
	__u64 taken_at;		      /* time at which a task was moved to the CPU's own queue and has not run since */
	__u64 strayed_at;	      /* time of the last event */
	__u64 counts[SCX_COUNTS];
	__u64 delays[SCX_DELAYS];
	__u32 taken_pid, taken_tid; /* the task that was probably taken */
	__u32 armed; /* LSX is about to leave, and the timer will wake the waiting siblings */
	__u32 left;  /* LSX has left, and ops.dispatch must still wake the siblings */
	__u32 lent;  /* the core is kept for LS, and runs BE that may run on no other core of the shard */
	__u32 pad;
	struct scx_known known[SCX_KNOWN];
};

/* The counters of a pod. */
struct scx_pod {
	__u64 run_ns;
	__u64 wait_ns;
	__u64 throttled; /* periods that began with parked tasks */
	__u64 pad;
};

/* The state that the CPUs of a shard share. */
struct scx_shard {
	struct qos_shard shard;
	struct qos_params params; /* the node's parameters, with the headroom of this shard */
	__u64 seen_at;		  /* time of the last pass of the reaper */
	__u64 scan_at;		  /* time of the next scan for long waits */
	__u64 oldest_ns;	  /* longest wait in the last scan */
	__u64 long_waits;
	__u64 relieved;
	__u64 repaired;
	__u64 woken; /* CPUs woken by the reaper */
	__u64 stopped;
	__u32 demand; /* BE tasks that run or wait here */
	__u32 part;   /* its part of the cap, in thousandths of a CPU */
	__u32 hurried; /* tasks that the hook found preempted inside the kernel */
	__u32 passes;
	/* The numbers of waiting tasks in the last pass. */
	__u32 queued, urgent, pinned;
	__u32 parked; /* tasks of all pods; in shard 0 only */
	__u32 spread_from; /* the CPU, counted in the shard, whose queue the reaper examines next: see spread */
	__u32 moved;	   /* tasks moved from the queue of a CPU to that of another */
};

enum scx_event_kind {
	SCX_STRAY = 1,
	SCX_LONG_WAIT,
	SCX_EXITED,
};

struct scx_event {
	enum scx_event_kind kind;
	__u32 pid; /* the process (thread group) */
	__u32 tid;
	__u32 cpu;
	__u32 policy;
	__u32 pinned;
	__u64 at_ns;
	__u64 wait_ns;
	__u64 cgroup;
};

/* Codes of the exit if the scheduler ended itself. */
enum scx_own_exit {
	SCX_SILENT,
	SCX_HOPELESS,
};

/* The reason for the end of the scheduler. */
struct scx_end {
	__u64 kind; /* enum scx_exit_kind */
	__s64 code;
	char reason[64];
	char message[192];
};

#endif
