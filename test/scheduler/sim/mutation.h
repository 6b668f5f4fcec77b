/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_TEST_MUTATION_H
#define TENON_TEST_MUTATION_H

/*
 * The rules of scheduler.h that a test can switch off. A
 * check that still passes without its rule is useless.
 */
#define RULES(X)                                                                                                       \
	X(PREEMPT_KICK)	 /* LSX that starts kicks BE off its core */                                                   \
	X(WAKE_KICK)	 /* LSX that stops wakes the refused siblings */                                               \
	X(SMT_RULE)	 /* BE is not given to a CPU beside LSX */                                                     \
	X(HOLD)		 /* nor for the hold time afterwards */                                                        \
	X(RUNNING_CHECK) /* BE that starts checks its siblings again */                                                \
	X(REREAD)	 /* a refused CPU checks again after it has set its bit */                                     \
	X(TICK)		 /* the tick finds BE beside LSX */                                                            \
	X(REAP_KICK)	 /* the reaper finds BE beside LSX */                                                          \
	X(REAP_WAKE)	 /* the reaper wakes idle CPUs for waiting tasks */                                            \
	X(REPAIR)	 /* the reaper repairs wrong bits */                                                           \
	X(SPREAD)	 /* the reaper moves tasks from the queues of CPUs to idle CPUs */                             \
	X(STUCK)	 /* and to CPUs that run BE, if their own CPU does not for long */                             \
	X(BOUND)	 /* headroom does not stop a task that may run on no other CPU */                              \
	X(RELIEF)	 /* a starving queue is served in spite of the rules */                                        \
	X(FED)		 /* very little service is starvation, too */                                                  \
	X(RELIEF_RATE)	 /* relief is rare */                                                                          \
	X(SPILL)	 /* a task that starves in spite of relief goes to the fair class */                           \
	X(CAP)		 /* at most the CPUs of the cap run BE */                                                      \
	X(HEADROOM)	 /* idle cores are kept for LS */                                                              \
	X(KEY)		 /* no credit for sleep */                                                                     \
	X(HOME)		 /* a task that comes to another CPU takes over its time */                                    \
	X(TURN)		 /* neither the CPU's queue nor the shard's is always first */                                 \
	X(WEIGHT)	 /* shares by weight */                                                                        \
	X(QUOTA)	 /* the quota is charged before a run */                                                       \
	X(POD_MIN)	 /* even the smallest quota lets a pod run */

enum rule {
#define X(name) BROKEN_##name,
	RULES(X)
#undef X
	BROKEN_RULES,
};

extern unsigned int broken; /* a bit for each rule that is switched off */

#define TENON_BROKEN(rule) (broken >> BROKEN_##rule & 1)

#endif
