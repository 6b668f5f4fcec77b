#!/bin/bash
# Builds the programs of the test cluster into $TENON_CACHE/cluster/bin
# (default: in the user's cache directory) and prints that directory. A program
# that exists and was made by the same recipe is not built again.
#
#	build.sh            build what is missing
#	build.sh --cached   build nothing: fail if something is missing
#
# The versions are in the go.mod of each folder here. The Go flags and the toolchain
# are those of the project, so that it shares the compiled Kubernetes packages. Without a
# cache, Kubernetes takes about seven minutes of two cores and 3.2 GB of memory,
# and the rest takes two. Only runc contains C (libseccomp).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cache=${TENON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon}/cluster
bin=$cache/bin
go=$("$here/../../../scripts/find-go.sh")
export GOTOOLCHAIN=${GOTOOLCHAIN:-auto} GOFLAGS="-mod=readonly -buildvcs=false -trimpath" GOWORK=off
mode=${1-}
begun=$SECONDS
programs=5 nth=0 # those that this script builds, and the present one

say() { echo "build.sh: $*" >&2; }
fail() { say "$*"; exit 1; }
case $mode in '' | --cached) ;; *) fail "usage: build.sh [--cached]" ;; esac

version() { sed -n "s|.*[[:space:]]$2 \(v[0-9][^ ]*\).*|\1|p" "$here/$1/go.mod" | head -n 1; }

# program NAME CGO FLAGS... -- PACKAGE...: builds the packages of a folder into
# $bin.
program() {
	local name=$1 cgo=$2 key flags=() out=$bin/
	shift 2
	nth=$((nth + 1))
	while [ "$1" != -- ]; do flags+=("$1") && shift; done
	shift
	# The toolchain is not part of the recipe: a program is not built again for it.
	key=$({ sed '/^toolchain /,+1d' "$here/$name"/go.mod && cat "$here/$name"/go.sum $(ls "$here/$name"/*.go 2>/dev/null); echo "$cgo" "${flags[@]}" "$@"; uname -m; } | sha256sum | cut -c1-16)
	[ "$(cat "$bin/.$name" 2>/dev/null)" != "$key" ] || return 0
	[ "$mode" != --cached ] || fail "$name is not in $bin: run make cluster-build"
	local since=$SECONDS building
	say "$nth of $programs: builds $name; $(((SECONDS - begun) / 60)) min so far"
	# A line each half minute shows that the build goes on, and how far. The shell
	# that prints it must not hold the lock on.
	(
		exec 9>&-
		while sleep 30 >/dev/null 2>&1; do # no pipe of the caller stays open
			say "$nth of $programs: still builds $name, for $(((SECONDS - since) / 60)) min $(((SECONDS - since) % 60)) s"
		done
	) &
	building=$!
	trap 'kill "$building" 2>/dev/null || true' EXIT
	rm -f "$bin/.$name" # an interrupted build must not count as complete
	[ "$name" != cni ] || out=$bin/cni/
	[ "$name" != k8s ] || out=$bin/hyper
	(cd "$here/$name" && CGO_ENABLED=$cgo "$go" build -o "$out" "${flags[@]}" "$@")
	kill "$building" 2>/dev/null || true
	trap - EXIT
	[ "$name" != etcd ] || mv "$bin/server" "$bin/etcd"
	echo "$key" >"$bin/.$name"
	say "$name in $((SECONDS - since)) s"
}

mkdir -p "$bin/cni"
exec 9>"$cache/lock-build"
flock -n 9 || { say "waits for another build of these programs" && flock 9; }

k8s=$(version k8s k8s.io/kubernetes) stamp=k8s.io/component-base/version
minor=${k8s#v*.}
program k8s 0 -ldflags "-s -w -X $stamp.gitVersion=$k8s -X $stamp.gitMajor=1 -X $stamp.gitMinor=${minor%%.*} -X $stamp.gitTreeState=clean" -- .
for name in kube-apiserver kube-controller-manager kube-proxy kube-scheduler kubelet kubectl; do ln -sf hyper "$bin/$name"; done

program etcd 0 -ldflags "-s -w" -- go.etcd.io/etcd/server/v3

containerd=github.com/containerd/containerd/v2
program containerd 0 -tags no_btrfs,no_devmapper,no_zfs -ldflags "-s -w -X $containerd/version.Version=$(version containerd $containerd)" \
	-- $containerd/cmd/{containerd,ctr,containerd-shim-runc-v2}

program runc 1 -tags "netgo osusergo seccomp" -ldflags "-s -w -extldflags -static -X main.version=$(version runc github.com/opencontainers/runc)" \
	-- github.com/opencontainers/runc

plugins=github.com/containernetworking/plugins/plugins
program cni 0 -ldflags "-s -w" -- $plugins/main/{bridge,loopback} $plugins/ipam/host-local

[ -n "$mode" ] || say "programs in $bin, $(du -sh "$bin" | cut -f1), in $((SECONDS - begun)) s"
echo "$bin"
