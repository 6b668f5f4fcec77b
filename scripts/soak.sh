#!/usr/bin/env bash
# soak [STAGE...]: runs all tests of make test on every machine of the rotation,
# with the long form of each test, and the runs that take an hour. Without
# arguments it runs every stage, one after another, and continues after a failed
# one. Each stage writes its output to bin/soak/STAGE.txt and a line for the
# summary to bin/soak/STAGE.result. To complete an interrupted run, name the
# remaining stages. REPEATS, FUZZTIME, CHAOSTIME, COLOCATIONTIME, PUBLISHEDTIME and
# TENON_TEST_CYCLES shorten the longest stages. Exit status 1: a stage failed or has
# not run on this commit.
set -uo pipefail
cd "$(dirname "$0")/.."
go=$(scripts/find-go.sh) || exit 1
commit=$(git rev-parse --short HEAD)
all="tools vet user chart scheduler repeat cluster-build root cluster rollout walk release cold vm-kernel vm vm-scheduler vm-means chaos nodes fuzz colocation published"
sudo=
[ "$(id -u)" = 0 ] || sudo="sudo -E env PATH=$PATH"
export GOFLAGS=-trimpath CGO_ENABLED=0
export TENON_TEST_KERNELS=all TENON_TEST_LONG=1 TENON_TEST_CYCLES=${TENON_TEST_CYCLES:-1000} TENON_TEST_RESIZES=100

# The virtual machines take hours, so they are three stages: the BE scheduler on
# each kernel, the counts of the isolation means, and all other tests.
schedulertests='^Test(Isolation|BEScheduler|BESchedulerBesideIsolatedCPUs|SchedulerComesAndGoes|SaturatedByLS)$'
meanstests='^TestMeansByCounts$'

# A sitting may lack the time for this test of 17 minutes beside the other tests in a
# cluster.
rollouttests='^TestARolloutThatHarmsGoesBack$'

# tests STAGE TIMEOUT PACKAGES -- COMMAND...: by scripts/run-tests.sh. The variable
# which has further flags of go test.
tests() {
	local stage=$1 timeout=$2 packages=$3
	shift 4
	scripts/run-tests.sh "bin/soak/$stage.log" $packages -- "$@" "$go" test -json -p 1 -count=1 -timeout "$timeout" ${which:-}
}

# repeat COUNT: the fast tests, COUNT times. make test runs each of them once, and
# so rarely finds a fault that shows in one run of twenty.
repeat() (
	unset TENON_TEST_KERNELS TENON_TEST_LONG TENON_TEST_CYCLES TENON_TEST_RESIZES
	status=0
	scripts/run-tests.sh -once bin/soak/repeat.log ./... -- scripts/test-user.sh -count="$1" -timeout 60m || status=1
	cd scheduler && "$go" test -count="$1" -timeout 60m ./... || status=1
	exit $status
)

stage() {
	case $1 in
	tools) scripts/install-deps.sh test ;;
	vet) make --no-print-directory vet lint ;;
	user) make --no-print-directory user-test ;;
	scheduler) (cd scheduler && "$go" test -count=1 -timeout 60m ./...) ;;
	repeat) repeat "${REPEATS:-20}" ;;
	chart | cluster-build) make --no-print-directory "$1" ;;
	vm-kernel) make --no-print-directory vm-kernel vm-kernel-built ;;
	root) tests root 60m ./... -- $sudo env TENON_TEST_STRICT=1 ;;
	cluster) which="-skip $rollouttests" tests cluster 150m ./test/cluster/... -- $sudo env TENON_TEST_STRICT=1 TENON_TEST_CLUSTER=1 ;;
	rollout) which="-v -run $rollouttests" tests rollout 60m ./test/cluster -- $sudo env TENON_TEST_STRICT=1 TENON_TEST_CLUSTER=1 ;;
	walk) scripts/walk-cluster.sh ;;
	release) scripts/walk-release.sh ;; # an hour where nothing is built
	cold) $sudo scripts/walk-cold.sh ;; # an hour: it builds Kubernetes, and measures
	chaos) # an hour of damage to a running machine
		$sudo env TENON_TEST_STRICT=1 TENON_TEST_CHAOS="${CHAOSTIME:-1h}" "$go" test -count=1 -timeout 90m -v -run '^TestChaos$' ./test/e2e ;;
	vm) which="-skip $schedulertests|$meanstests" tests vm 300m ./test/vm -- $sudo env TENON_TEST_STRICT=1 TENON_TEST_VM=1 ;;
	vm-scheduler) which="-run $schedulertests" tests vm-scheduler 300m ./test/vm -- $sudo env TENON_TEST_STRICT=1 TENON_TEST_VM=1 ;;
	vm-means) # a seed and the length of the published experiment: the test checks the load, not the counts
		export TENON_TEST_MEANS_ARGS="${TENON_TEST_MEANS_ARGS:--seeds 1 -for 500ms}"
		which="-run $meanstests" tests vm-means 180m ./test/vm -- $sudo env TENON_TEST_STRICT=1 TENON_TEST_VM=1 ;;
	nodes) # 1000 and 5000 with a real API server, and 5000 replayed
		$sudo "$go" test -run '^$' -bench '^Benchmark(Thousand|FiveThousand)Nodes$' -benchtime 1x -timeout 60m -v ./internal/cluster/manager &&
			TENON_SCALE_NODES=5000 TENON_SCALE_PODS=10 TENON_SCALE_RATE=84 \
				$sudo "$go" test -run '^$' -bench '^BenchmarkThousandNodes$' -benchtime 1x -timeout 60m -v ./internal/cluster/manager ;;
	fuzz) scripts/fuzz.sh "${FUZZTIME:-1m}" ;;
	colocation) # an hour of the experiment, with nginx and ffmpeg
		make --no-print-directory build && $sudo rm -rf bin/soak/colocation && # the lab overwrites no results
			$sudo bin/tenon lab colocation --design blocks --until-resolved --max-time "${COLOCATIONTIME:-60m}" --out bin/soak/colocation ;;
	published) # the whole grid of the published experiment on job concurrency: an hour at most
		make --no-print-directory build && $sudo rm -rf bin/soak/published && # the lab overwrites no results
			$sudo bin/tenon lab published concurrency --max-time "${PUBLISHEDTIME:-60m}" --out bin/soak/published ;;
	*)
		echo "soak.sh: no stage $1: want some of $all" >&2
		return 2
		;;
	esac
}

for name in "$@"; do
	case " $all " in *" $name "*) ;; *) stage "$name" || exit ;; esac
done
mkdir -p bin/soak
for name in ${*:-$all}; do
	echo "== $name"
	rm -f "bin/soak/$name.result"
	begun=$SECONDS
	stage "$name" 2>&1 | tee "bin/soak/$name.txt"
	status=${PIPESTATUS[0]}
	said=$(grep -aE '^[0-9]+ passed, [0-9]+ skipped, [0-9]+ failed$' "bin/soak/$name.txt" | tail -n 1)
	notes=$(grep -ac '^NOTE ' "bin/soak/$name.txt")
	printf '%-14s %-6s %6d s  %s%s\n' "$name" "$([ "$status" = 0 ] && echo ok || echo failed)" $((SECONDS - begun)) "$said" \
		"$([ "$notes" = 0 ] || echo ", $notes notes")" >"bin/soak/$name.line"
	{ echo "$commit $status" && cat "bin/soak/$name.line"; } >"bin/soak/$name.result"
	rm "bin/soak/$name.line"
	tail -n 1 "bin/soak/$name.result"
done

echo "== summary of $commit"
failed=0
for name in $all; do
	at=none status=1
	[ ! -e "bin/soak/$name.result" ] || read -r at status <"bin/soak/$name.result"
	if [ "$at" != "$commit" ]; then
		printf '%-14s %s\n' "$name" "has not run on this commit"
		failed=1
		continue
	fi
	tail -n 1 "bin/soak/$name.result"
	[ "$status" = 0 ] || failed=1
done
exit $failed
