package scx

import (
	"testing"
	"time"

	"tenon.sh/tenon/internal/kernel/task"
)

// These tests run the scheduler in the running kernel: see kernel_test.go.

func TestQuotaIsEnforced(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE, Pod: podA})
	if err := sched.SetPods([]Pod{{Slot: podA, Quota: 50 * time.Millisecond}}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		s.start("spin", be, task.Ext)
	}
	time.Sleep(watch / 3)
	before, after, took := s.statusOver(sched, watch)
	got := after.Pods[podA].Run - before.Pods[podA].Run
	share := float64(got) / float64(took)
	t.Logf("quota 0.5 CPUs, got %.3f; %d periods in debt, %d parked; %+v", share, after.Pods[podA].Throttled, after.Parked, after.SchedulerCounts)
	if share < 0.35 || share > 0.6 {
		t.Errorf("with a quota of 0.5 CPUs the pod got %.3f", share)
	}
	if after.Throttled == 0 || after.Pods[podA].Throttled == 0 {
		t.Error("the count of throttled periods did not grow")
	}
}

func TestWeightsShareACPU(t *testing.T) {
	s := newStage(t)
	a, aID := s.Group("a")
	b, bID := s.Group("b")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: aID, Class: BE, Pod: podA}, Group{Cgroup: bID, Class: BE, Pod: podB})
	if err := sched.SetPods([]Pod{{Slot: podA, Weight: 100}, {Slot: podB, Weight: 300}}); err != nil {
		t.Fatal(err)
	}
	for range len(s.cpus) {
		s.start("spin", a, task.Ext)
		s.start("spin", b, task.Ext)
	}
	time.Sleep(watch / 3)
	before, after, _ := s.statusOver(sched, 2*watch)
	gotA, gotB := after.Pods[podA].Run-before.Pods[podA].Run, after.Pods[podB].Run-before.Pods[podB].Run
	t.Logf("weight 100 got %v, weight 300 got %v; %+v", gotA, gotB, after.SchedulerCounts)
	if ratio := float64(gotB) / float64(gotA); ratio < 2.2 || ratio > 4 {
		t.Errorf("weights 1:3, times 1:%.2f", ratio)
	}
}

func TestCapOfAllBE(t *testing.T) {
	s := newStage(t)
	be, beID := s.Group("be")
	sched := s.load(Options{})
	s.classify(sched, Group{Cgroup: beID, Class: BE})
	if err := sched.SetCap(1500); err != nil {
		t.Fatal(err)
	}
	for range len(s.cpus) + 1 {
		s.start("spin", be, task.Ext)
	}
	time.Sleep(watch / 3)
	before, after, took := s.statusOver(sched, watch)
	cpus := float64(after.Run[BE]-before.Run[BE]) / float64(took)
	t.Logf("cap 1.5 CPUs, got %.2f; %+v", cpus, after.SchedulerCounts)
	if cpus < 1.1 || cpus > 1.7 {
		t.Errorf("with a cap of 1.5 CPUs BE got %.2f", cpus)
	}
	if after.Capped == 0 {
		t.Error("the count of refusals by the cap did not grow")
	}
}
