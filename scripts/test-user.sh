#!/usr/bin/env bash
# Runs go test -json like a user without root. Arguments are packages and flags.
# It does not run go vet, which make vet does.
# When called by root, it builds as root and runs every test binary as nobody,
# on a copy of the sources that nobody may read.
set -euo pipefail
cd "$(dirname "$0")/.."
go=$(scripts/find-go.sh)
if [ "$(id -u)" != 0 ]; then
	exec "$go" test -json -vet=off "$@"
fi
turn=$(git rev-parse HEAD 2>/dev/null || true)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
git ls-files -z --cached --others --exclude-standard | xargs -0 cp --no-dereference --parents -t "$copy" 2>/dev/null || true
chmod -R a+rX "$copy"
cat >"$copy/as-nobody" <<'EOF'
#!/bin/sh
# Other users cannot read go's build folder, so the binary is copied out of it.
dir=$(mktemp -d) && chmod 755 "$dir" && cp "$1" "$dir/" && shift_to="$dir/$(basename "$1")" && shift
mkdir "$dir/home" && chown 65534:65534 "$dir/home"
# Nothing is fetched into that home: root has its modules in a cache of its own.
HOME=$dir/home TMPDIR=$dir/home GOPROXY=off setpriv --reuid=65534 --regid=65534 --clear-groups --no-new-privs "$shift_to" "$@"
status=$?
rm -rf "$dir"
exit $status
EOF
chmod 755 "$copy/as-nobody"
cd "$copy"
# The copy has no commit, which selects tests (test/turn).
TENON_TEST_KERNELS=${TENON_TEST_KERNELS:-$turn}
export TENON_TEST_KERNELS
env -u TENON_TEST_STRICT "$go" test -json -vet=off -exec "$copy/as-nobody" "$@"
