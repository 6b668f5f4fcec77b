#!/bin/bash
# Builds the API server of another Kubernetes, by default of the oldest one that the
# chart accepts, from the Go modules of its release. Prints the folder with it, beside
# the etcd of the test cluster. The tests of tenon-manager then run against it:
#
#	KUBEBUILDER_ASSETS=$(scripts/oldest-apiserver.sh) go test ./internal/cluster/manager
#
#	oldest-apiserver.sh [VERSION]    such as 1.30.14
#
# It takes about ten minutes of two cores. A folder that exists is not built again.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
version=${1:-1.30.14}
minor=${version#*.} minor=${minor%%.*}
cache=${TENON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon}/cluster
bin=$cache/bin-$version
if [ -x "$bin/kube-apiserver" ] && [ -x "$bin/etcd" ]; then
	echo "$bin"
	exit
fi
[ -x "$cache/bin/etcd" ] || { echo "oldest-apiserver.sh: no $cache/bin/etcd: run make cluster-build" >&2 && exit 1; }
go=$("$here/find-go.sh")
export GOTOOLCHAIN=${GOTOOLCHAIN:-auto} GOFLAGS="-mod=mod -buildvcs=false -trimpath" GOWORK=off CGO_ENABLED=0

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cat >main.go <<'END'
package main

import (
	"os"
	_ "time/tzdata"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(apiserver.NewAPIServerCommand())) }
END
# The module of Kubernetes replaces its parts by folders of its repository. The parts of
# a release 1.X.Y are modules of version 0.X.Y.
"$go" mod init oldest >&2
"$go" mod edit -go=1.22.0
theirs=$("$go" mod download -json "k8s.io/kubernetes@v$version" | sed -n 's/.*"GoMod": "\(.*\)",/\1/p')
{
	echo "require k8s.io/kubernetes v$version"
	sed -n '/^require (/,/^)/p' "$theirs" | grep -v '^	k8s.io/[a-z-]* v0.0.0'
	echo "replace ("
	grep -o 'k8s.io/[a-z-]* => ./staging' "$theirs" | cut -d' ' -f1 | sort -u | sed "s/.*/	& => & v0.${version#*.}/"
	echo ")"
} >>go.mod
"$go" mod tidy >&2
stamp=k8s.io/component-base/version
"$go" build -o kube-apiserver -ldflags "-s -w -X $stamp.gitVersion=v$version -X $stamp.gitMajor=1 -X $stamp.gitMinor=$minor" .
mkdir -p "$bin"
cp "$cache/bin/etcd" kube-apiserver "$bin/"
echo "$bin"
