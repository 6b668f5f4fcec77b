/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TENON_SCX_H
#define TENON_SCX_H

/*
 * The kernel's sched_ext interface as far as Tenon uses it: types whose
 * fields the loader locates (CO-RE), and functions in their four forms.
 * ABI is 612, 613, 619 or 701, the first kernel of each form. The
 * loader determines the form by the names that the kernel declares.
 *
 *	612	first names; a CPU's queue can be emptied in cpu_release only
 *	613	the names of today
 *	619	functions that return whether they did it (___v2); a CPU's queue
 *		can be emptied from anywhere, so from the hook at sched_switch
 *	701	scx_bpf_dsq_move_to_local returns it, too, under a new name
 *
 * The names with ___v2 are spelled out: the library that resolves them wants
 * the exact name.
 */

#define SCHED_EXT 7 /* include/uapi/linux/sched.h */

#define PF_EXITING	  0x00000004 /* include/linux/sched.h */
#define SIGNAL_GROUP_EXIT 0x00000004 /* include/linux/sched/signal.h: the process was killed, or exits */

/*
 * The values of enums are constants here, because the type information
 * of some kernels truncates 64-bit values. Enum values that differ
 * between kernels are not used (SCX_ENQ_HEAD, SCX_ENQ_CPU_SELECTED).
 */
#define SCX_DSQ_LOCAL_ON      0xc000000000000000ULL
#define SCX_ENQ_WAKEUP	      (1ULL << 0)
#define SCX_TASK_QUEUED	      (1U << 0) /* in sched_ext_entity.flags */
#define SCX_KICK_IDLE	      (1ULL << 0)
#define SCX_KICK_PREEMPT      (1ULL << 1)
#define SCX_OPS_ENQ_LAST      (1ULL << 1)
#define SCX_OPS_ENQ_EXITING   (1ULL << 2)
#define SCX_OPS_SWITCH_PARTIAL (1ULL << 3)

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct scx_cpu_release_args;

enum scx_exit_kind {
	SCX_EXIT_NONE,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	__s64 exit_code;
	const char *reason;
	char *msg;
};

#pragma clang attribute pop

/*
 * The loader matches the members with the kernel's by
 * name. It sets flags, timeout_ms and hotplug_seq.
 */
struct sched_ext_ops {
	__s32 (*select_cpu)(struct task_struct *p, __s32 prev_cpu, __u64 wake_flags);
	void (*enqueue)(struct task_struct *p, __u64 enq_flags);
	void (*dispatch)(__s32 cpu, struct task_struct *prev);
	void (*tick)(struct task_struct *p);
	void (*running)(struct task_struct *p);
	void (*stopping)(struct task_struct *p, bool runnable);
	void (*cpu_release)(__s32 cpu, struct scx_cpu_release_args *args);
	void (*enable)(struct task_struct *p);
	void (*set_cpumask)(struct task_struct *p, const struct cpumask *mask);
	__s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	__u64 flags;
	__u32 timeout_ms;
	__u64 hotplug_seq;
	char name[128];
};

struct bpf_iter_scx_dsq {
	__u64 __opaque[6];
} __attribute__((aligned(8)));

struct bpf_iter_num {
	__u64 __opaque[1];
} __attribute__((aligned(8)));

/* Present in every form. */
__s32 scx_bpf_create_dsq(__u64 dsq_id, __s32 node) __ksym;
__s32 scx_bpf_dsq_nr_queued(__u64 dsq_id) __ksym;
void scx_bpf_kick_cpu(__s32 cpu, __u64 flags) __ksym __weak; /* absent: see scx_kick */
bool scx_bpf_test_and_clear_cpu_idle(__s32 cpu) __ksym;
__s32 scx_bpf_task_cpu(const struct task_struct *p) __ksym;
void scx_bpf_exit_bstr(__s64 exit_code, char *fmt, unsigned long long *data, __u32 data__sz) __ksym;
const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym;
void scx_bpf_put_idle_cpumask(const struct cpumask *mask) __ksym;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, __u64 dsq_id, __u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) __ksym;
int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;
int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;
void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;
bool bpf_cpumask_test_cpu(__u32 cpu, const struct cpumask *mask) __ksym;
bool bpf_cpumask_intersects(const struct cpumask *a, const struct cpumask *b) __ksym;

/*
 * scx_insert, scx_insert_vtime: put a task that is being enqueued into a queue.
 * scx_take: move the first task of a queue that may run here to this CPU's own.
 * scx_move, scx_move_vtime: move the iterated task to another queue.
 */
#if ABI < 619
__u32 scx_bpf_reenqueue_local(void) __ksym; /* in cpu_release */
#endif

#if ABI == 612

void scx_bpf_dispatch(struct task_struct *p, __u64 dsq_id, __u64 slice, __u64 enq_flags) __ksym;
void scx_bpf_dispatch_vtime(struct task_struct *p, __u64 dsq_id, __u64 slice, __u64 vtime, __u64 enq_flags) __ksym;
bool scx_bpf_consume(__u64 dsq_id) __ksym;
bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 dsq_id, __u64 enq_flags) __ksym;
void scx_bpf_dispatch_from_dsq_set_vtime(struct bpf_iter_scx_dsq *it, __u64 vtime) __ksym;
bool scx_bpf_dispatch_vtime_from_dsq(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 dsq_id,
				     __u64 enq_flags) __ksym;
#define scx_insert scx_bpf_dispatch
#define scx_insert_vtime scx_bpf_dispatch_vtime
#define scx_take scx_bpf_consume
#define scx_move scx_bpf_dispatch_from_dsq
#define scx_move_set_vtime scx_bpf_dispatch_from_dsq_set_vtime
#define scx_move_vtime scx_bpf_dispatch_vtime_from_dsq

#else

bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 dsq_id, __u64 enq_flags) __ksym;
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *it, __u64 vtime) __ksym;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *it, struct task_struct *p, __u64 dsq_id, __u64 enq_flags) __ksym;
#define scx_move scx_bpf_dsq_move
#define scx_move_set_vtime scx_bpf_dsq_move_set_vtime
#define scx_move_vtime scx_bpf_dsq_move_vtime

#if ABI == 613

void scx_bpf_dsq_insert(struct task_struct *p, __u64 dsq_id, __u64 slice, __u64 enq_flags) __ksym;
void scx_bpf_dsq_insert_vtime(struct task_struct *p, __u64 dsq_id, __u64 slice, __u64 vtime, __u64 enq_flags) __ksym;
bool scx_bpf_dsq_move_to_local(__u64 dsq_id) __ksym;
#define scx_insert scx_bpf_dsq_insert
#define scx_insert_vtime scx_bpf_dsq_insert_vtime
#define scx_take scx_bpf_dsq_move_to_local

#elif ABI == 619 || ABI == 701

struct scx_bpf_dsq_insert_vtime_args {
	__u64 dsq_id;
	__u64 slice;
	__u64 vtime;
	__u64 enq_flags;
} __attribute__((preserve_access_index));

bool scx_bpf_dsq_insert___v2(struct task_struct *p, __u64 dsq_id, __u64 slice, __u64 enq_flags) __ksym;
bool __scx_bpf_dsq_insert_vtime(struct task_struct *p, struct scx_bpf_dsq_insert_vtime_args *args) __ksym;
#if ABI == 619
bool scx_bpf_dsq_move_to_local(__u64 dsq_id) __ksym;
#define scx_take scx_bpf_dsq_move_to_local
#else
bool scx_bpf_dsq_move_to_local___v2(__u64 dsq_id, __u64 enq_flags) __ksym;
#define scx_take(dsq) scx_bpf_dsq_move_to_local___v2(dsq, 0)
#endif
void scx_bpf_reenqueue_local___v2(void) __ksym;
bool scx_bpf_task_set_slice(struct task_struct *p, __u64 slice) __ksym;
#define scx_insert scx_bpf_dsq_insert___v2
#define scx_insert_vtime(p, dsq, slice_ns, key, flags)                                                                 \
	({                                                                                                             \
		struct scx_bpf_dsq_insert_vtime_args args = {                                                          \
			.dsq_id = dsq,                                                                                 \
			.slice = slice_ns,                                                                             \
			.vtime = key,                                                                                  \
			.enq_flags = flags,                                                                            \
		};                                                                                                     \
		__scx_bpf_dsq_insert_vtime(p, &args);                                                                  \
	})

#else
#error "ABI: want 612, 613, 619 or 701"
#endif
#endif

/* scx_kick does nothing if only the hook is loaded (to measure its cost without sched_ext). */
static __always_inline void scx_kick(__s32 cpu, __u64 flags)
{
	if (scx_bpf_kick_cpu)
		scx_bpf_kick_cpu(cpu, flags);
}

/* scx_set_slice sets the slice of the task that runs, or is about to stop, on this CPU. */
#if ABI >= 619
#define scx_set_slice(p, ns) scx_bpf_task_set_slice(p, ns)
#else
#define scx_set_slice(p, ns) ((p)->scx.slice = (ns))
#endif

/*
 * scx_curr returns the task on a CPU, or NULL. From 6.18 on the kernel
 * has a function for it; the older way makes these kernels log a warning.
 */
struct task_struct *scx_bpf_cpu_curr(__s32 cpu) __ksym __weak;
#if ABI >= 619
#define scx_curr(cpu) scx_bpf_cpu_curr(cpu)
#else
struct rq *scx_bpf_cpu_rq(__s32 cpu) __ksym __weak;
static __always_inline struct task_struct *scx_curr(__s32 cpu)
{
	struct rq *rq;

	if (scx_bpf_cpu_curr)
		return scx_bpf_cpu_curr(cpu);
	rq = scx_bpf_cpu_rq(cpu);
	return rq ? rq->curr : 0;
}
#endif

/* each_below counts i from 0 to n - 1, in a loop that the verifier follows once. */
#define each_below(i, n)                                                                                               \
	for (struct bpf_iter_num counter __attribute__((aligned(8), cleanup(bpf_iter_num_destroy))),                  \
	     *begun __attribute__((unused)) = (bpf_iter_num_new(&counter, 0, (n)), (void *)0);                         \
	     ({                                                                                                        \
		     int *next_ = bpf_iter_num_next(&counter);                                                         \
		     (i) = next_ ? *next_ : 0;                                                                         \
		     next_;                                                                                            \
	     });)

#endif
