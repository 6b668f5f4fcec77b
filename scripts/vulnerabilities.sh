#!/usr/bin/env bash
# Searches the built programs for known vulnerabilities of the modules in them, by
# govulncheck. Exit status 1: there are some. It says so if the database cannot be
# reached, and then fails only with --strict, because a release can be built where
# nothing can be fetched.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
go=$(scripts/find-go.sh) || exit
strict=${1-}
programs=$(ls bin/programs/linux-amd64/* 2>/dev/null)
[ -n "$programs" ] || { echo "vulnerabilities.sh: no programs in bin/programs/linux-amd64: make release builds them" >&2; exit 1; }

# without WHY: says that nothing was checked.
without() {
	echo "vulnerabilities.sh: NOT CHECKED: $1" >&2
	[ -z "$strict" ] || exit 1
	exit "${status:-0}" # those that were found before count
}

tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
GOBIN=$tool GOFLAGS='' "$go" install golang.org/x/vuln/cmd/govulncheck@v1.9.0 || without "govulncheck cannot be built"
status=0
for program in $programs; do
	echo "== $program"
	"$tool/govulncheck" -mode=binary "$program"
	case $? in
	0) ;;
	3) status=1 ;; # it found some
	*) without "govulncheck failed, as it does where its database cannot be reached" ;;
	esac
done
exit $status
