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

# check NAME MESSAGE COMMAND...: the command prints the number of changed lines,
# which counts only for a message without a body.
check() {
	local name=$1 message=$2 subject rest line lines body=
	shift 2
	subject=${message%%$'\n'*}
	rest=${message#"$subject"}
	while IFS= read -r line; do
		[[ $line =~ ^[A-Z][A-Za-z-]+-(by|Id|To):\  || $line =~ ^[[:space:]]*$ ]] || body=yes
	done <<<"$rest"
	[ ${#subject} -le $most ] || complain "$name" "the first line has more than $most characters"
	[[ $subject =~ ^[a-z0-9][a-z0-9./,\ -]*:\ [^[:space:]] ]] || complain "$name" "the first line is not \"package: verb what\""
	[[ ! ${subject,,} =~ (^|[^a-z])(wip|fixup!|squash!) ]] || complain "$name" "the work is not done"
	[[ $rest != $'\n'[!$'\n']* ]] || complain "$name" "the second line is not empty"
	[ -z "$body" ] || return 0
	lines=$("$@" | awk '{n += $1 + $2} END {print n + 0}')
	[ "$lines" -le $trivial ] || complain "$name" "no body says why $lines lines changed"
}

# changed COMMIT: of the oldest commit of a shallow clone, it is not known what
# it changed.
changed() { ! git cat-file -e "$1^" 2>/dev/null || git diff --numstat "$1^" "$1"; }

if [ "${1:-}" = --message ]; then
	! git rev-parse --quiet --verify MERGE_HEAD >/dev/null || exit 0
	message=$(git stripspace --strip-comments <"$2")
	check "that you write" "$message" git diff --cached --numstat
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
while IFS= read -r -d '' entry; do
	commit=${entry%%$'\n'*}
	check "${commit:0:10}" "${entry#*$'\n'}" changed "$commit"
done < <(git log --no-merges -z --format=%H%n%B "$range")
exit $bad
