/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TENON_TEST_MUTATION_H
#define TENON_TEST_MUTATION_H

/*
 * The rules of scheduler.h that a test can switch off. A check that does not
 * notice when its rule is gone checks nothing.
 */
#define RULES(X)                                                                                                       \
	X(PREEMPT_KICK)	 /* LSX that starts kicks BE off its core */                                                   \
	X(WAKE_KICK)	 /* LSX that stops wakes who was expelled */                                                   \
	X(SMT_RULE)	 /* no BE is given to a CPU beside LSX */                                                      \
	X(HOLD)		 /* nor for a while after it */                                                                \
	X(RUNNING_CHECK) /* BE that starts looks at its siblings again */                                              \
	X(REREAD)	 /* who is refused looks again after saying so */                                              \
	X(TICK)		 /* the tick finds BE beside LSX */                                                            \
	X(REAP_KICK)	 /* the reaper does */                                                                         \
	X(REAP_WAKE)	 /* the reaper wakes idle CPUs for waiting tasks */                                            \
	X(REPAIR)	 /* and repairs bits that are not true */                                                      \
	X(RELIEF)	 /* who starves gets a turn in spite of the rules */                                           \
	X(FED)		 /* and a trickle of service is starvation */                                                  \
	X(RELIEF_RATE)	 /* but seldom */                                                                              \
	X(SPILL)	 /* who starves in spite of relief goes to the fair class */                                   \
	X(CAP)		 /* no more CPUs run BE than the cap says */                                                   \
	X(HEADROOM)	 /* idle cores are kept for LS */                                                              \
	X(KEY)		 /* no credit for sleep */                                                                     \
	X(TURN)		 /* neither the CPU's queue nor the shard's is always first */                                 \
	X(WEIGHT)	 /* shares by weight */                                                                        \
	X(QUOTA)	 /* runs are paid for in advance */                                                            \
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
