#!/usr/bin/env bash
# stage NAME BUDGET COMMAND...: runs one stage of the tests within its time
# budget (as timeout(1) writes it: 90s, 5m), and says how long it took. A stage
# that needs more than its budget fails, so that the whole never grows unseen.
set -uo pipefail
name=$1 budget=$2
shift 2
echo "== $name (budget $budget)"
start=$SECONDS
timeout --kill-after=20s "$budget" "$@"
status=$?
[ "$status" = 124 ] && echo "== $name: over its budget of $budget"
echo "== $name: $([ "$status" = 0 ] && echo ok || echo "failed, status $status") in $((SECONDS - start)) s"
exit "$status"
