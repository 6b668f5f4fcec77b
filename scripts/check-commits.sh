#!/usr/bin/env bash
# Checks the form of commit messages: "package: verb what" of at most 72
# characters, an empty line, and a body that says why. A commit of at most ten
# changed lines needs no body.
#
#   scripts/check-commits.sh [RANGE]           the commits of a range; without one those since the rule
#   scripts/check-commits.sh --message FILE    a message that is being written (scripts/hooks/commit-msg)
set -euo pipefail
export LC_ALL=C.UTF-8 # characters, not bytes
base=3a738cb4bd80d3955f696ad9ab8dbcfe3898f437 # the rule holds for what came after
most=72
trivial=10

bad=0
complain() {
	echo "commit $1: $2: \"$subject\"" >&2
	bad=1
}

# check NAME MESSAGE CHANGED-LINES
check() {
	local subject rest body
	subject=${2%%$'\n'*}
	rest=${2#"$subject"}
	body=$(grep -vE '^[A-Z][A-Za-z-]+-(by|Id|To): ' <<<"$rest" | tr -d '[:space:]' || true)
	[ ${#subject} -le $most ] || complain "$1" "the first line has more than $most characters"
	[[ $subject =~ ^[a-z0-9][a-z0-9./,\ -]*:\ [^[:space:]] ]] || complain "$1" "the first line is not \"package: verb what\""
	! grep -qiE '(^|[^a-z])(wip|fixup!|squash!)' <<<"$subject" || complain "$1" "the work is not done"
	[[ $rest != $'\n'[!$'\n']* ]] || complain "$1" "the second line is not empty"
	[ -n "$body" ] || [ "$3" -le $trivial ] || complain "$1" "no body says why $3 lines changed"
}

changed() { awk '{n += $1 + $2} END {print n + 0}'; }

if [ "${1:-}" = --message ]; then
	! git rev-parse --quiet --verify MERGE_HEAD >/dev/null || exit 0
	message=$(git stripspace --strip-comments <"$2")
	check "that you write" "$message" "$(git diff --cached --numstat | changed)"
	exit $bad
fi
range=${1:-}
if [ -z "$range" ]; then
	if git cat-file -e "$base^{commit}" 2>/dev/null; then
		range=$base..HEAD
	elif [ "$(git rev-parse --is-shallow-repository)" = true ]; then
		range=HEAD # it does not reach back to the base
	else
		exit 0 # a history without the base is not this one
	fi
fi
commits=$(git rev-list --no-merges "$range")
for commit in $commits; do
	lines=0 # of the oldest commit of a shallow clone: what it changed is not known
	! git cat-file -e "$commit^" 2>/dev/null || lines=$(git diff --numstat "$commit^" "$commit" | changed)
	check "${commit:0:10}" "$(git log -1 --format=%B "$commit")" "$lines"
done
exit $bad
