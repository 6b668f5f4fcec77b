#!/bin/sh
# Prints the path of a Go command that can build this project: version 1.21 or
# newer. Since 1.21 Go downloads the toolchain that go.mod requires (with
# GOTOOLCHAIN=auto, which distributions switch off).
set -eu
cd / # so that no go.mod has a say in the answers

for go in "$(command -v go || true)" /usr/local/go/bin/go $(ls -d /usr/lib/go-1.*/bin/go 2>/dev/null | sort -rV); do
	[ -x "$go" ] || continue
	minor=$(GOTOOLCHAIN=local "$go" env GOVERSION 2>/dev/null | sed -n 's/^.*go1\.\([0-9]*\).*/\1/p')
	if [ "${minor:-0}" -ge 21 ]; then
		echo "$go"
		exit
	fi
done
echo "find-go.sh: no Go 1.21 or newer on PATH, in /usr/local/go or in /usr/lib/go-1.*" >&2
exit 1
