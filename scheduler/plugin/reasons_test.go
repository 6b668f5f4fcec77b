package plugin

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"tenon.sh/tenon/internal/model/cpus"
)

// notOurs lists the reasons in the table that are not constants: the reason of
// another plugin, and the error of Reserve.
var notOurs = []string{"Insufficient cpu", "node … lost the CPUs for the pod since it was chosen: …"}

// TestThePageListsEachReason compares the table "Why a pod waits" in
// docs/scheduler.md with the possible reasons of a node.
func TestThePageListsEachReason(t *testing.T) {
	page, err := os.ReadFile("../../docs/scheduler.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "\n## Why a pod waits\n")
	section, _, _ := strings.Cut(rest, "\n## ")
	listed, reasons := slices.Clone(notOurs), make([]string, 0)
	for _, why := range cpus.Refusals() {
		reasons = append(reasons, why.Text())
	}
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 3 {
			continue
		}
		for _, code := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			if reason := code[1]; !slices.Contains(reasons, reason) && !slices.Contains(notOurs, reason) {
				t.Errorf("docs/scheduler.md lists %q, which is no reason", reason)
			} else {
				listed = append(listed, reason)
			}
		}
	}
	for _, why := range reasons {
		if !slices.Contains(listed, why) {
			t.Errorf("docs/scheduler.md does not list %q", why)
		}
	}
}
