package admission

import corev1 "k8s.io/api/core/v1"

// koordScheduler is the name of Koordinator's scheduler. Many manifests name it,
// and their pods stay Pending in a cluster without it.
const koordScheduler = "koord-scheduler"

// rescheduled replaces the name of the pod's scheduler, if the request has a
// translation for it. Otherwise it warns if the name is that of Koordinator's
// scheduler.
func (r Request) rescheduled(p *corev1.Pod, v *Verdict) {
	name := p.Spec.SchedulerName
	switch to := r.SchedulerNames[name]; {
	case to != "":
		p.Spec.SchedulerName = to
		v.warn("spec.schedulerName: %s became %s: want that name in the manifest", shown(name), shown(to))
	case name == koordScheduler:
		v.warn("spec.schedulerName: %s", withoutKoordScheduler)
	}
}

const withoutKoordScheduler = `"` + koordScheduler + `" is Koordinator's scheduler: without it in this cluster the pod stays Pending: leave the field out, or let tenon-manager translate it (--translate-scheduler ` + koordScheduler + `=default-scheduler)`
