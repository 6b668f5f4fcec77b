/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
#ifndef TENON_CGROUP_BPF_H
#define TENON_CGROUP_BPF_H

/* The cgroup of a task in the hierarchy with the CPU controller. */

#define CGROUP_DEPTH 32 /* levels that are searched for a tracked cgroup */

const volatile __u32 cgroup_version = 2; /* version of that hierarchy; user space sets it before loading */

/*
 * On v1 use the cgroup in the cpu hierarchy. On v2 the task group may
 * belong to an ancestor, where the controller is on.
 */
static __always_inline struct cgroup *cgroup_of(struct task_struct *p)
{
	if (cgroup_version == 1)
		return p->sched_task_group->css.cgroup;
	return p->cgroups->dfl_cgrp;
}

#endif
