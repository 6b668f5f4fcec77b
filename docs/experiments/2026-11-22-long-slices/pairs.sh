#!/bin/bash
# pairs.sh ROUNDS SECS RATE: run-queue delay and latency of nginx beside ffmpeg under tenond at 65 %, with long slices and without, in turn
G=/sys/fs/cgroup/cpu/testbed-NAME-0/kubepods; A=/sys/fs/cgroup/cpuacct/testbed-NAME-0/kubepods
worker() { for p in $(cat $G/pod*/*/cgroup.procs 2>/dev/null); do grep -qa 'worker' /proc/$p/cmdline && echo $p; done | head -1; }
now() { python3 slices.py $(cat $G/besteffort/pod*/*/tasks); }
set_to() { bash cm.sh $1; for i in $(seq 60); do s=$(now); case "$1 $s" in "true 100:"*) [[ "$s" == *" "* ]] || return;; "false "*) [[ "$s" == *100:* ]] || return;; esac; sleep 0.5; done; echo "not so: $1 $s"; }
w=$(worker)
meas() { s0=($(cat /proc/$w/schedstat)); b0=$(cat $A/besteffort/cpuacct.usage); t0=$(date +%s%N); th0=$(awk '/nr_throttled/{print $2}' $G/besteffort/cpu.stat)
  nice -n -10 ./cluster -name NAME run ./tenon lab load http://10.88.0.1:8000/ --rate $RATE --duration ${SECS}s --warmup 1s --cpus 0 --connections 64 -o json > l.json 2>/dev/null
  s1=($(cat /proc/$w/schedstat)); b1=$(cat $A/besteffort/cpuacct.usage); t1=$(date +%s%N); th1=$(awk '/nr_throttled/{print $2}' $G/besteffort/cpu.stat)
  python3 - $r $1 $((s1[1]-s0[1])) $((s1[2]-s0[2])) $((s1[0]-s0[0])) $((b1-b0)) $((t1-t0)) $((th1-th0)) "$(now)" <<'P'
import sys,json
r,v,w,n,ru,be,t,th,sl=sys.argv[1:]; d=json.load(open('./l.json')); L=d['latency']
print(r,'%-6s'%v,'delay_us %.2f slices %s ls %.3f be %.3f throttled %s p50 %d p99 %d p999 %d spoiled %.3f have %s'%(int(w)/1e3/int(n),n,int(ru)/int(t),int(be)/int(t),th,L['p50_us'],L['p99_us'],L['p999_us'],d['spoiled_by_client']/d['scheduled'],sl.replace(' ',',')),flush=True)
P
}
SECS=$2; RATE=$3
for r in $(seq $1); do
  if [ $((r%2)) = 0 ]; then o="true false"; else o="false true"; fi
  for m in $o; do set_to $m; meas $m; done
done
