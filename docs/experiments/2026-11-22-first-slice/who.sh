. ./rig-functions.sh; SECS=4; RATE=6000; I=TRACEFS/instances/wk
tr() { echo > $I/trace; echo 1 > $I/tracing_on; r=t; meas $1 >> ./rig-traced.txt; echo 0 > $I/tracing_on; cat $I/trace > ./t.trace; python3 ./who.py $1 ./t.trace; }
for k in 1 2; do
[ $k = 2 ] && { $CL run kubectl apply --validate=false -f ./be.yaml >/dev/null; sleep 3; }
knob 1 -1 0; tr full+idle; knob 1 30000 0; tr quota+idle; knob 0 30000 1; tr quota+class; knob 1 30000 0; slice 100000000; tr quota+idle+long;  knob 0 -1 0
$CL run kubectl delete pod be --wait >/dev/null
sed "s/READRATE/0.75/" ./bep.yaml | $CL run kubectl apply --validate=false -f - >/dev/null; sleep 3
tr paced; knob 0 -1 1; tr paced+class; knob 0 -1 0; slice 100000000; tr paced+long
$CL run kubectl delete pod bep --wait >/dev/null
done; echo done
