#!/usr/bin/env bash
# fuzz [TIME]: runs every fuzz test of the module for TIME (default 1m) each.
set -euo pipefail
cd "$(dirname "$0")/.."
go=$(scripts/find-go.sh)
time=${1:-1m}
status=0
while read -r dir name; do
	echo "== $dir $name for $time"
	"$go" test -run '^$' -fuzz "^$name\$" -fuzztime "$time" -fuzzminimizetime 10x "$dir" || status=1
done < <(grep -rno --include='*_test.go' '^func Fuzz[A-Za-z0-9_]*' . | sed -E 's#^\./(.*)/[^/]*:[0-9]+:func (.*)#./\1 \2#')
exit $status
