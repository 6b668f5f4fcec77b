#!/bin/bash
# ab.sh ROUNDS SECONDS WORKERS MEAN_US WORK_US SPINNERS VARIANT...: as the kubelet makes the
# groups, a service beside spinners on all CPUs, every variant in each round. No CPU is set:
# where a thread runs is the kernel's choice.
R=$1 S=$2 WORKERS=$3 MEAN=$4 WORK=$5 SPIN=$6; shift 6
C=/sys/fs/cgroup/cpu/placed
make() {
	mkdir -p $C/be/pod/c $C/pod/c
	echo 262144 >$C/cpu.shares
	for g in be be/pod be/pod/c; do echo 2 >$C/$g/cpu.shares; done
	for g in pod pod/c; do echo 1024 >$C/$g/cpu.shares; done
}
for r in $(seq $R); do for v in $(shuf -e "$@"); do
	make
	unset BESLICE
	case $v in *podidle*) echo 1 >$C/be/pod/cpu.idle; echo 1 >$C/be/pod/c/cpu.idle ;; esac
	case $v in *classidle*) echo 1 >$C/be/cpu.idle ;; esac
	case $v in *long*) export BESLICE=99997000 ;; esac
	case $v in *quota*) echo 100000 >$C/be/cpu.cfs_period_us; echo $((QUOTA * 1000)) >$C/be/cpu.cfs_quota_us ;; esac
	pids=
	case $v in none*) ;; *) for i in $(seq $SPIN); do (echo $BASHPID >$C/be/pod/c/tasks; exec ./spin) & pids="$pids $!"; done ;; esac
	sleep 0.3
	used() { local n=0 t; for p in $pids; do read t _ </proc/$p/schedstat; t=$((t / 1000000)); n=$((n + t)); done; echo $n; }
	before=$(used)
	printf '%s %-16s ' $r $v
	(echo $BASHPID >$C/pod/c/tasks; exec ./svc $WORKERS $MEAN $WORK $S $r) | tr '\n' ' '
	echo be $(( $(used) - before ))
	[ -n "$pids" ] && kill $pids
	wait 2>/dev/null
	rmdir $C/pod/c $C/pod $C/be/pod/c $C/be/pod $C/be $C
done; done
