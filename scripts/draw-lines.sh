#!/usr/bin/env bash
# draw-lines [SEED [KEYFILE]]: draws ten lines of code, each from another package, for a reader who
# sees only the folder names and must say where each line lives. Prints the
# folder names, then the lines; writes the answers to KEYFILE (default: standard error).
# Lines that import, close a block, or name their own package are not drawn.
set -euo pipefail
cd "$(dirname "$0")/.."
seed=${1:-1} key=${2:-/dev/stderr}
echo "Packages:"
find internal -name '*.go' ! -name '*_test.go' -printf '%h\n' | sort -u | sed 's#^internal/#  #'
echo
find internal -name '*.go' ! -name '*_test.go' -print0 | xargs -0 grep -nE '^\s+[^/ ].{45,}$' |
	grep -vE ':[0-9]+:\s*("|import|//|\}|return (nil|err)|if err)|json:"' |
	awk -v seed="$seed" -F: 'BEGIN{srand(seed)} {
		file=$1; sub(/\/[^\/]*$/, "", file); sub(/^internal\//, "", file)
		text=$0; sub(/^[^:]*:[^:]*:[ \t]*/, "", text)
		if (index(text, file ".")) next
		print rand() "\t" file "\t" text }' |
	sort -n | awk -F'\t' '!seen[$2]++' | head -10 |
	awk -F'\t' -v key="$key" '{print NR ". " $3; print NR ". " $2 > key}'
