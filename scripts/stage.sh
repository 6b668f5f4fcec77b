#!/usr/bin/env bash
# stage NAME BUDGET COMMAND...: runs one stage of the tests within its time
# budget (in the form of timeout(1): 90s, 5m), and prints its duration. A stage
# that exceeds its budget fails, so that growth of the whole is noticed. It also
# prints the CPU time of the stage: two stages are faster side by side if both wait.
#
# A line each two minutes ($STAGE_PULSE seconds) shows that the stage goes on. With
# $STAGE_RESULTS, a line "NAME STATUS SECONDS" is added to that file (test.sh).
set -uo pipefail
name=$1 budget=$2
shift 2
echo "== $name (budget $budget)"
start=$SECONDS
# read waits on a pipe to which nothing writes. A sleep would outlive this shell. The loop
# ignores SIGINT, as all jobs in the background of a script, so it looks for its parent.
while read -rt "${STAGE_PULSE:-120}" _ <> <(:); [ $? -gt 128 ] && kill -0 $$ 2>/dev/null; do
	echo "-- $name: goes on, for $(((SECONDS - start) / 60)) min of at most $budget"
done &
pulse=$!
# still ends the lines, and waits: none may follow the result of the stage. The shell
# would report that it was ended.
still() { { kill "$pulse" && wait "$pulse"; } 2>/dev/null; }
trap still EXIT
# timeout makes a process group of its own, so that a stage over its budget ends with
# all its processes. Ctrl-C therefore reaches this shell and not them, and this shell
# hands it on. A signal also ends wait, so this shell waits until the process is gone.
# After the signal, a stage still counts its results (run-tests.sh), which takes some ten
# seconds on a busy machine.
timed='' caught=''
for signal in INT TERM HUP; do trap "caught=$signal; [ -z \"\$timed\" ] || kill -$signal \"\$timed\" 2>/dev/null" $signal; done
timeout --kill-after=60s "$budget" "$@" &
timed=$!
# timeout ignores SIGINT until it handles it, as all jobs in the background of a script.
[ -z "$caught" ] || kill "$timed"
while { wait "$timed"; } 2>/dev/null; status=$?; kill -0 "$timed" 2>/dev/null; do :; done
# timeout ends alone if it has a signal before it knows the number of its command.
[ -z "$caught" ] || kill -- "-$timed" 2>/dev/null
trap - INT TERM HUP
still
trap - EXIT # its process is gone, and its number may be another's
[ "$status" = 124 ] && echo "== $name: over its budget of $budget"
# In a subshell, times would not know this shell's children.
times=$(mktemp)
LC_ALL=C times >"$times"
used=$(awk -F'[ms ]+' 'NR == 2 { printf "%.0f", 60 * ($1 + $3) + $2 + $4 }' "$times")
rm "$times"
echo "== $name: $([ "$status" = 0 ] && echo ok || echo "failed, status $status") in $((SECONDS - start)) s, CPU $used s"
[ -z "${STAGE_RESULTS-}" ] || echo "$name $status $((SECONDS - start))" >>"$STAGE_RESULTS"
exit "$status"
