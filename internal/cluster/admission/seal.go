package admission

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// AnnotationSeal is an annotation that proves that the webhook wrote
// AnnotationProfiles of this pod, and when: "1700000000.5f2c…". Any user may
// write AnnotationProfiles. Without the proof, a user could keep all profiles
// away from a pod, and a manifest that was copied from a running pod would.
const AnnotationSeal = "tenon.sh/colocation-profiles-seal"

const (
	// sealedFor is the time for which a seal is valid. The API server makes all
	// calls for a new pod within the timeout of its request, which is 60 s at most
	// by default. After that time, a seal cannot serve another pod of that name.
	sealedFor = time.Minute
	// sealedBeside is the largest difference between the time of a seal and the
	// creation of its pod. It is large, because their clocks may differ.
	sealedBeside = 10 * time.Minute
)

// seal writes AnnotationSeal into the pod.
func (r Request) seal(p *corev1.Pod) {
	if r.Seal != nil {
		set(&p.Annotations, map[string]string{AnnotationSeal: r.sealOf(p, r.Now.Unix())})
	}
}

// isSealed reports whether the webhook wrote AnnotationProfiles of the pod for
// this request. Without Seal, this cannot be decided, and the result is true.
func (r Request) isSealed(p *corev1.Pod) bool {
	if r.Seal == nil {
		return true
	}
	at, known := sealTime(p.Annotations)
	age := r.Now.Unix() - at
	// The seals of both texts are compared, because the time of this comparison
	// tells nothing about the texts.
	return known && max(age, -age) <= int64(sealedFor.Seconds()) && r.Seal(p.Annotations[AnnotationSeal]) == r.Seal(r.sealOf(p, at))
}

// sealOf returns AnnotationSeal for a pod and a time.
func (r Request) sealOf(p *corev1.Pod, at int64) string {
	text, err := json.Marshal([]string{p.Namespace, p.Name, p.GenerateName, p.Annotations[AnnotationProfiles], strconv.FormatInt(at, 10)})
	if err != nil {
		return "" // a list of texts can always be encoded
	}
	return strconv.FormatInt(at, 10) + "." + r.Seal(string(text))
}

// sealTime returns the time in AnnotationSeal, in seconds since 1970.
func sealTime(annotations map[string]string) (at int64, known bool) {
	text, _, found := strings.Cut(annotations[AnnotationSeal], ".")
	at, err := strconv.ParseInt(text, 10, 64)
	return at, found && err == nil && at > 0
}

// Decided reports whether a running pod, which was created at the given time,
// has AnnotationProfiles from its own creation. A copy of another pod has the
// time of that pod in its seal. A pod from before seals has none.
func Decided(annotations map[string]string, created time.Time) bool {
	_, decided := annotations[AnnotationProfiles]
	if _, sealed := annotations[AnnotationSeal]; !sealed {
		return decided
	}
	at, known := sealTime(annotations)
	apart := created.Unix() - at
	return decided && known && max(apart, -apart) <= int64(sealedBeside.Seconds())
}
