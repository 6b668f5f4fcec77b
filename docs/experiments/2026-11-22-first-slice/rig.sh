#!/bin/bash
# rig.sh ROUNDS SECS RATE READRATE
CL="./cluster -name NAME"; G=/sys/fs/cgroup/cpu/testbed-NAME-0/kubepods; A=/sys/fs/cgroup/cpuacct/testbed-NAME-0/kubepods
worker() { for p in $(cat $G/pod*/*/cgroup.procs 2>/dev/null); do grep -qa 'worker' /proc/$p/cmdline && echo $p; done | head -1; }
knob() { # idle-pods quota classidle
  echo 0 > $G/besteffort/cpu.idle; [ $3 = 1 ] || echo 2 > $G/besteffort/cpu.shares 
  for d in $G/besteffort/pod*; do echo $1 > $d/cpu.idle; for c in $d/*/; do echo $1 > $c/cpu.idle; done; done
  echo $2 > $G/besteffort/cpu.cfs_quota_us; [ $3 = 1 ] && echo 1 > $G/besteffort/cpu.idle; }
slice() { ./setslice $1 $(cat $G/besteffort/pod*/*/tasks) 2>/dev/null; }
meas() { w=$(worker); s0=($(cat /proc/$w/schedstat)); b0=$(cat $A/besteffort/cpuacct.usage); t0=$(date +%s%N)
  nice -n -10 bash ./rigload.sh $RATE $SECS > ./l.json; s1=($(cat /proc/$w/schedstat)); b1=$(cat $A/besteffort/cpuacct.usage); t1=$(date +%s%N)
  python3 - $r $1 $((s1[1]-s0[1])) $((s1[2]-s0[2])) $((s1[0]-s0[0])) $((b1-b0)) $((t1-t0)) <<'P'
import sys,json
r,v,w,n,ru,be,t=sys.argv[1:]; d=json.load(open('./l.json')); L=d['latency']
print(r,'%-14s'%v,'delay_us %.2f slices %s ls %.3f be %.3f p50 %d p99 %d p999 %d spoiled %.2f'%(int(w)/1e3/int(n),n,int(ru)/int(t),int(be)/int(t),L['p50_us'],L['p99_us'],L['p999_us'],d['spoiled_by_client']/d['scheduled']),flush=True)
P
}
SECS=$2; RATE=$3
for r in $(seq $1); do
  sed "s/READRATE/$4/" ./bep.yaml | $CL run kubectl apply --validate=false -f - >/dev/null; sleep 4
  knob 0 -1 0; meas paced; slice 100000000; meas paced+long; knob 0 -1 1; meas paced+class; knob 0 -1 0
  $CL run kubectl delete pod bep --wait >/dev/null
  $CL run kubectl apply --validate=false -f ./be.yaml >/dev/null; sleep 4
  knob 0 -1 0; meas full; knob 1 -1 0; meas full+idle; knob 1 30000 0; meas quota+idle; knob 0 30000 1; meas quota+class; knob 1 30000 0; slice 100000000; meas quota+idle+long; knob 0 -1 0
  $CL run kubectl delete pod be --wait >/dev/null
done; echo done
