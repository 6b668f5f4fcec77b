#!/usr/bin/env bash
# test.sh COMMAND...: runs the stages of make test. Before them it prints what they do
# and how long that takes, and after them one line with the result. COMMAND runs each
# stage by stage.sh.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
begun=$SECONDS

# The stages in their order, with the minutes of the first run and of later ones on a
# machine of two CPUs: docs/experiments/2026-11-23-build-and-test-times, rounded up.
stages='
tools          1  0  installs missing Debian packages, as root or by sudo
vet            7  1  fetches the modules; formatting, go vet, the linter
vm-kernel      1  0  fetches three kernels and the emulator
cluster-build  6  0  compiles Kubernetes, etcd, containerd and runc
user           4  4  the tests without root
chart          2  1  Helm as a library, and the chart
scheduler      2  1  tenon-scheduler, a module of its own
vm             7  6  the tests in virtual machines, beside the three stages above
root           7  6  the tests as root: they write to cgroups of their own
cluster        7  5  the tests on a real Kubernetes
'

# is_there STAGE: succeeds if what the stage builds or fetches is in the cache.
is_there() {
	case $1 in
	cluster-build) timeout 10 test/cluster/build/build.sh --cached ;;
	vm-kernel)
		for series in 6.18 7.3 6.1; do timeout 10 test/vm/kernel.sh --cached "$series" || return; done
		timeout 10 test/vm/qemu.sh --cached
		;;
	*) false ;;
	esac >/dev/null 2>&1
}

echo "make test: ten stages; up to 40 minutes for the first time on two CPUs, and 15 to 20 after it."
echo "For less: make unit takes two minutes and needs no root; make user-test, root-test, cluster-test"
echo "and vm run one stage each."
echo
printf '%-13s %5s  %5s  %7s  %s\n' stage first later 'at most' 'what it does (minutes)'
while read -r name first later what; do
	[ -n "$name" ] || continue
	! is_there "$name" || what="has all that it needs already"
	budget=$(sed -n "s/^\t@*\$(STAGE) $name \([0-9]*\)m .*/\1/p" Makefile)
	printf '%-13s %5s  %5s  %7s  %s\n' "$name" "$first" "$later" "$budget" "$what"
done <<<"$stages"
echo

results=$(mktemp)
trap 'rm -f "$results"' EXIT
trap : INT TERM HUP # they end the stages, and the result is still printed
STAGE_RESULTS=$results "$@"
status=$?
took="$(((SECONDS - begun) / 60)) min $(((SECONDS - begun) % 60)) s"
if [ "$status" = 0 ]; then
	echo "make test: ok, all stages in $took"
	exit
fi
failed=$(awk '$2 != 0 { printf "%s%s (status %s, after %s s)", sep, $1, $2, $3; sep = ", " }' "$results")
logs=$(awk '$2 != 0 && system("test -e bin/" $1 ".log") == 0 { printf "; see bin/%s.log", $1 }' "$results")
echo "make test: FAILED after $took: ${failed:-stopped in the middle of a stage}$logs"
exit "$status"
