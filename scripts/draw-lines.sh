#!/usr/bin/env bash
# draw-lines [SEED [KEYFILE]]: draws ten lines of code, each from another package, for a reader who
# sees only the folder names and must say where each line lives. Prints the
# folder names, then the lines; writes the answers to KEYFILE (default: standard error).
#
# DRAW=declarations (default) draws the first lines of functions: what a newcomer looks for a place
# for. DRAW=statements draws any line; among those are many that would fit everywhere, such as
# `key, value, _ := strings.Cut(line, "=")`, so even the authors do not place ten of ten.
# Lines that import, close a block, or name their own package are not drawn.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=${1:-1} key=${2:-/dev/stderr}
case ${DRAW:-declarations} in
declarations) pattern='^func .{40,}\{$' ;;
statements) pattern='^\s+[^/ ].{45,}$' ;;
*) echo "draw-lines: DRAW=$DRAW: want declarations or statements" >&2; exit 2 ;;
esac
echo "Packages:"
find internal -name '*.go' ! -name '*_test.go' -printf '%h\n' | sort -u | sed 's#^internal/#  #'
echo
find internal -name '*.go' ! -name '*_test.go' -print0 | xargs -0 grep -nE "$pattern" |
	grep -vE ':[0-9]+:\s*("|import|//|\}|return (nil|err)|if err)|json:"' |
	awk -v seed="$seed" -F: 'BEGIN{srand(seed)} {
		file=$1; sub(/\/[^\/]*$/, "", file); sub(/^internal\//, "", file)
		text=$0; sub(/^[^:]*:[^:]*:[ \t]*/, "", text)
		if (index(text, file ".")) next
		print rand() "\t" file "\t" text }' |
	sort -n | awk -F'\t' '!seen[$2]++' | head -10 |
	awk -F'\t' -v key="$key" '{print NR ". " $3; print NR ". " $2 > key}'
