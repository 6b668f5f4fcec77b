package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// A controlRule imitates one fact about resctrl. The fact has the same name in the
// conformance suite. If refuse is nil, other code calls applies with the rule's name.
type controlRule struct {
	name   string
	on     string // make, schemata or tasks
	refuse func(controlOp) (syscall.Errno, string)
}

// The names of rules that refuse no operation. Other code looks them up.
const (
	newHasAll   = "a new group has everything"
	goBack      = "the threads of a removed control group go to the default one"
	inOne       = "a thread is in one control group"
	keepsOthers = "a cache that is not named keeps its ways"
	roundsUp    = "bandwidth is rounded up to the next step"
	saysMode    = "a file says whether the threads of a core share a limit of bandwidth"
)

// ControlRules returns the names of the rules of resctrl.
func ControlRules() []string {
	var names []string
	for _, r := range controlRules() {
		names = append(names, r.name)
	}
	return names
}

// checkEach returns a refuse function. It calls check for each value of a schemata
// line, and refuses the operation if check returns a reason for one value.
func checkEach(check func(o controlOp, resource string, v schemataValue) string) func(controlOp) (syscall.Errno, string) {
	return func(o controlOp) (syscall.Errno, string) {
		resource, values := schemataLine(o.text)
		for _, v := range values {
			if why := check(o, resource, v); why != "" {
				return syscall.EINVAL, why
			}
		}
		return 0, ""
	}
}

// mask returns the value as a mask of an L3 cache. It returns false if the
// value is no mask, or is not for an L3 cache.
func (v schemataValue) mask(resource string) (uint64, bool) {
	x, err := v.number(resource)
	return x, resource == "L3" && err == nil
}

func controlRules() []controlRule {
	return []controlRule{
		{name: newHasAll}, {name: goBack}, {name: inOne}, {name: keepsOthers}, {name: roundsUp}, {name: saysMode},
		{
			name: "a control group cannot be made in another", on: "make",
			refuse: func(o controlOp) (syscall.Errno, string) {
				return refuseIf(strings.Contains(o.group, "/"), syscall.EPERM), "ok"
			},
		},
		{
			name: "an existing control group cannot be made again", on: "make",
			refuse: func(o controlOp) (syscall.Errno, string) {
				return refuseIf(o.n.divided.groups[o.group] != nil, syscall.EEXIST), "ok"
			},
		},
		{
			name: "there are at most as many control groups as CLOSIDs", on: "make",
			refuse: func(o controlOp) (syscall.Errno, string) {
				return refuseIf(len(o.n.divided.groups) >= o.n.divided.Groups, syscall.ENOSPC), "Out of CLOSIDs"
			},
		},
		{
			name: "a line without a newline is refused", on: "schemata",
			refuse: func(o controlOp) (syscall.Errno, string) {
				return refuseIf(!strings.HasSuffix(o.text, "\n"), syscall.EINVAL), "ok"
			},
		},
		{
			name: "an unknown resource is refused", on: "schemata",
			refuse: func(o controlOp) (syscall.Errno, string) {
				resource, _ := schemataLine(o.text)
				d := o.n.divided
				known := resource == "L3" && len(d.Ways.Domains) > 0 || resource == "MB" && len(d.MBDomains) > 0
				return refuseIf(!known, syscall.EINVAL), fmt.Sprintf("Unknown or unsupported resource name '%s'", resource)
			},
		},
		{
			name: "a mask that is not a number is refused", on: "schemata",
			refuse: checkEach(func(_ controlOp, resource string, v schemataValue) string {
				if _, err := v.number(resource); err != nil && resource == "L3" {
					return "Non-hex character in the mask " + v.text
				}
				return ""
			}),
		},
		{
			name: "a cache that comes twice is refused", on: "schemata",
			refuse: func(o controlOp) (syscall.Errno, string) {
				_, values := schemataLine(o.text)
				for i, v := range values {
					if slices.ContainsFunc(values[:i], func(w schemataValue) bool { return w.id == v.id }) {
						return syscall.EINVAL, fmt.Sprintf("Duplicate domain %d", v.id)
					}
				}
				return 0, ""
			},
		},
		{
			name: "ways that do not exist are refused", on: "schemata",
			refuse: checkEach(func(o controlOp, resource string, v schemataValue) string {
				if mask, is := v.mask(resource); is && mask&^o.n.divided.Ways.Mask != 0 {
					return "Mask out of range"
				}
				return ""
			}),
		},
		{
			name: "a group without ways is refused", on: "schemata",
			refuse: checkEach(func(o controlOp, resource string, v schemataValue) string {
				if mask, is := v.mask(resource); is && mask == 0 && o.n.divided.Ways.Least > 0 {
					return "Mask out of range"
				}
				return ""
			}),
		},
		{
			name: "ways apart from each other are refused", on: "schemata",
			refuse: checkEach(func(o controlOp, resource string, v schemataValue) string {
				if mask, is := v.mask(resource); is && !neighbours(mask) && !o.n.divided.Ways.Sparse {
					return fmt.Sprintf("The mask %x has non-consecutive 1-bits", mask)
				}
				return ""
			}),
		},
		{
			name: "bandwidth above the most is refused", on: "schemata",
			refuse: checkEach(func(o controlOp, resource string, v schemataValue) string {
				mb := o.n.divided.MB
				if x, err := v.number(resource); resource == "MB" && (err != nil || x < mb.Least || x > mb.Most) {
					return fmt.Sprintf("MB value %s out of range [%d,%d]", v.text, mb.Least, mb.Most)
				}
				return ""
			}),
		},
		{
			name: "a cache that does not exist is refused", on: "schemata",
			refuse: func(o controlOp) (syscall.Errno, string) {
				resource, values := schemataLine(o.text)
				domains := o.n.divided.Ways.Domains
				if resource == "MB" {
					domains = o.n.divided.MBDomains
				}
				for _, v := range values {
					if !slices.Contains(domains, v.id) {
						return syscall.EINVAL, "ok"
					}
				}
				return 0, ""
			},
		},
		{
			name: "a thread that has ended is refused", on: "tasks",
			refuse: func(o controlOp) (syscall.Errno, string) {
				pid, err := strconv.Atoi(strings.TrimSpace(o.text))
				return refuseIf(err != nil || o.n.tasks[pid] == nil, syscall.ESRCH), fmt.Sprintf("No task %d", pid)
			},
		},
	}
}
