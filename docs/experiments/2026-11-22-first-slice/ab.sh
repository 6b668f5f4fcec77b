#!/bin/bash
# ab.sh ROUNDS SECS MEAN WORK variants...
R=$1; S=$2; MEAN=$3; WORK=$4; shift 4
C=/sys/fs/cgroup/cpu/first-slice
mk(){ mkdir -p $C/be/pod/c $C/pod/c; echo 262144 > $C/cpu.shares; echo 1024 >$C/pod/cpu.shares; echo 1024 > $C/pod/c/cpu.shares; echo 2 >$C/be/cpu.shares; echo 2 >$C/be/pod/cpu.shares; echo 2 > $C/be/pod/c/cpu.shares; }
rmg(){ rmdir $C/pod/c $C/pod $C/be/pod/c $C/be/pod $C/be $C; }
Q=${Q:-30}
for r in $(seq $R); do for v in "$@"; do
  mk; n=4; cmd="./spin"; unset SLICE BESLICE BEIDLE; lvl=$C/be
  case $v in *thr*) cmd="./spin idle";; esac
  case $v in *paced*) cmd="./pace $((Q*100)) 40000";; esac
  case $v in *slice*) export SLICE=100000;; esac
  case $v in *long*) export BESLICE=${LONG:-100000000};; esac; case $v in *longidle*) export BEIDLE=1;; esac; case $v in *short*) export BESLICE=100000;; esac
  case $v in *none*) n=0;; esac
  case $v in *one*) n=1;; esac
  case $v in *classidle*) echo 1 > $C/be/cpu.idle;; esac
  case $v in *podidle*) echo 1 > $C/be/pod/cpu.idle; echo 1 > $C/be/pod/c/cpu.idle;; esac
  case $v in *@pod*) lvl=$C/be/pod;; *@c*) lvl=$C/be/pod/c;; esac
  case $v in *w1024*) echo 1024 > $C/be/cpu.shares;; *w100*) echo 100 > $C/be/cpu.shares;; *w20*) echo 20 > $C/be/cpu.shares;; esac
  case $v in *quota*) echo 100000 > $lvl/cpu.cfs_period_us; echo $((Q*1000)) > $lvl/cpu.cfs_quota_us;; esac
  case $v in *q10@*|*q10) echo 10000 > $lvl/cpu.cfs_period_us; echo $((Q*100)) > $lvl/cpu.cfs_quota_us;; esac
  case $v in *q1000*) echo 1000000 > $lvl/cpu.cfs_period_us; echo $((Q*10000)) > $lvl/cpu.cfs_quota_us;; esac
  pids=
  for i in $(seq $n); do ( echo $BASHPID > $C/be/pod/c/tasks; exec taskset -c 1 $cmd ) & pids="$pids $!"; done
  sleep 0.2
  printf '%s %-24s ' $r $v
  ( echo $BASHPID > $C/pod/c/tasks; exec taskset -c 1 ./ls $MEAN $WORK $S $r )
  [ -n "$pids" ] && kill $pids; wait 2>/dev/null
  rmg
done; done
