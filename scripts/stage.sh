#!/usr/bin/env bash
# stage NAME BUDGET COMMAND...: runs one stage of the tests within its time
# budget (in the form of timeout(1): 90s, 5m), and prints its duration. A stage
# that exceeds its budget fails, so that growth of the whole is noticed. It also
# prints the CPU time of the stage: two stages are faster side by side if both wait.
set -uo pipefail
name=$1 budget=$2
shift 2
echo "== $name (budget $budget)"
start=$SECONDS
timeout --kill-after=20s "$budget" "$@"
status=$?
[ "$status" = 124 ] && echo "== $name: over its budget of $budget"
# In a subshell, times would not know this shell's children.
times=$(mktemp)
LC_ALL=C times >"$times"
used=$(awk -F'[ms ]+' 'NR == 2 { printf "%.0f", 60 * ($1 + $3) + $2 + $4 }' "$times")
rm "$times"
echo "== $name: $([ "$status" = 0 ] && echo ok || echo "failed, status $status") in $((SECONDS - start)) s, CPU $used s"
exit "$status"
