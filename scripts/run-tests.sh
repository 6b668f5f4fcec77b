#!/usr/bin/env bash
# run-tests [-once] [-skipped FILE] LOG PACKAGE... -- COMMAND...: runs tests by
# gotestsum. COMMAND is go test -json with its flags. LOG gets all that the tests
# print, LOG with the ending .xml their results for programs (JUnit).
#
#	run-tests.sh bin/vm.log ./test/vm -- go test -json -count=1
#	run-tests.sh -only FILE LOG -- go test -json -count=1
#
# Up to three failed tests are repeated, each alone. A test that then passes gets a
# note (decision 7). It may have one: test/notes.txt lists those that have had one,
# and a second note fails the run. With -once, nothing is repeated. With -skipped,
# if nothing failed, the skipped tests are written to a file, and -only runs the
# tests of that file. The last lines have the notes and the counts.
set -uo pipefail
fail() { echo "run-tests.sh: $*" >&2; exit 2; }
gotestsum=gotest.tools/gotestsum@v1.13.0
notes=test/notes.txt
go=$("${0%/*}/find-go.sh") || exit

again=(--rerun-fails=1 --rerun-fails-max-failures=3 --rerun-fails-run-root-test)
skipped= only=
while :; do
	case ${1-} in
	-once) again=() && shift ;;
	-skipped) skipped=$2 && shift 2 ;;
	-only) only=$2 && shift 2 ;;
	*) break ;;
	esac
done
[ $# -gt 1 ] || fail "no log and no command"
log=$1 first=()
shift
while [ $# -gt 0 ] && [ "$1" != -- ]; do first+=("$1") && shift; done
[ $# -gt 1 ] || fail "no command"
shift
if [ -n "$only" ]; then
	awk 'NF != 2 { exit 1 } END { exit !NR }' "$only" || fail "$only does not name a package and a test in each line"
	first=("-run=^($(awk '{ print $2 }' "$only" | sort -u | paste -sd'|'))\$" $(awk '{ print $1 }' "$only" | sort -u))
fi
[ ${#first[@]} -gt 0 ] || fail "no packages"

# gotestsum appends the test and its package when it repeats one.
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir -p "${log%/*}"
printf '#!/bin/sh\n[ $# -gt 0 ] || set --%s\nexec%s "$@"\n' "$(printf ' %q' "${first[@]}")" "$(printf ' %q' "$@")" >"$dir/command"
chmod +x "$dir/command"
trap : INT TERM HUP # they end the tests; what came of them until then is still counted
sum() { CGO_ENABLED=0 GOFLAGS=-trimpath "$go" run "$gotestsum" --raw-command --no-color --ignore-non-json-output-lines "$@"; }
sum --format pkgname-and-test-fails --hide-summary skipped --jsonfile "$dir/json" --junitfile "${log%.log}.xml" "${again[@]}" -- "$dir/command"
status=$?
sum --format standard-verbose --hide-summary all -- cat "$dir/json" >"$log" 2>&1
"$go" run "$gotestsum" tool slowest --threshold 1s --jsonfile "$dir/json"
today="$(date -u +%F) $(git rev-parse --short HEAD 2>/dev/null || echo unknown)"
awk -v notes=$notes -v today="$today" -v skips="$dir/skipped" -f "${0%/*}/count-tests.awk" "$dir/json" || status=1
echo "all of it: $log"
if [ $status = 0 ] && [ -n "$skipped" ]; then cp "$dir/skipped" "$skipped" 2>/dev/null || : >"$skipped"; fi
exit $status
