package admission

import corev1 "k8s.io/api/core/v1"

// koordScheduler is the name of Koordinator's scheduler. Many manifests contain
// it. Without this scheduler in the cluster, their pods stay Pending.
const koordScheduler = "koord-scheduler"

// replaceScheduler replaces the scheduler name of the pod if SchedulerNames has
// another name for it. Otherwise it warns if the name is that of Koordinator's
// scheduler.
func (r Request) replaceScheduler(p *corev1.Pod, v *Verdict) {
	name := p.Spec.SchedulerName
	switch to := r.SchedulerNames[name]; {
	case to != "":
		p.Spec.SchedulerName = to
		v.warn(Replaced, "spec.schedulerName", "%s became %s: want that name in the manifest", quoteText(name), quoteText(to))
	case name == koordScheduler:
		v.warn(Pending, "spec.schedulerName", "%s", withoutKoordScheduler)
	}
}

const withoutKoordScheduler = `"` + koordScheduler + `" is Koordinator's scheduler: without it in this cluster the pod stays Pending: leave the field out, or let tenon-manager translate it (--translate-scheduler ` + koordScheduler + `=tenon-scheduler, or =default-scheduler where tenon-scheduler does not run)`
