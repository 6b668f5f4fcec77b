#!/usr/bin/env bash
# walk-cold [COMMAND...]: the newcomer's way from a fresh clone, timed without any
# cache. It makes a minimal Debian of the suite of this machine in a new folder,
# clones the commit of this tree into it, and runs scripts/walk-cluster.sh in the
# clone as root, with an empty home. Then it does so again in another fresh clone,
# with the caches that the first one left. A second such Debian, without caches
# again, gets scripts/walk-machine.sh. Both scripts type the commands of their
# pages of docs. At the end it prints a table. With COMMAND it runs only that,
# in one clone.
#
# The machine lends its kernel, its devices and its network; none of its programs
# and caches is seen there. It needs root, debootstrap, 20 GB in $WALK_DIR (default
# /var/tmp), package registries that can be reached, and an hour. It removes what
# it made, also after a failure, unless KEEP=1; and it fails if a process, mount,
# cgroup, network device or firewall table remains that was not there before.
set -euo pipefail
cd "$(dirname "$0")/.."
begun=$SECONDS
say() { printf '== %6d s  walk-cold: %s\n' $((SECONDS - begun)) "$*"; }
fail() { echo "walk-cold: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "run this as root"
command -v debootstrap >/dev/null || fail "no debootstrap: apt-get install debootstrap"
[ -z "$(git status --porcelain)" ] || echo "walk-cold: the tree has changes that are not committed: the clone lacks them" >&2
dir=$(mktemp -d "$(realpath "${WALK_DIR:-/var/tmp}")/tenon-cold-XXXXXX")
log=$dir/log
root= # of the present walk

# state: what a walk must not change on the machine.
state() {
	find /sys/fs/cgroup -type d -printf 'cgroup %p\n'
	awk '{ print "mount", $5 }' /proc/self/mountinfo
	ls /sys/class/net /run/netns 2>/dev/null | sed 's/^/network /'
	if command -v nft >/dev/null; then nft list tables; fi
}

# walkers: the processes whose mounts contain the folder: those of the walk, and
# those of the test cluster in it. The folder is mounted nowhere else.
walkers() { grep -lsF "/${dir##*/}/" /proc/[0-9]*/mountinfo | sed 's|/proc/\([0-9]*\)/.*|\1|'; }

cleanup() {
	local status=$? signal pids left
	trap '' INT TERM HUP
	if [ $status != 0 ] && [ -n "$root" ] && [ -x "$root/srv/tenon/bin/cluster" ]; then
		within make --no-print-directory cluster-down || true
	fi
	for signal in TERM TERM TERM KILL KILL KILL; do
		pids=$(walkers) || true
		[ -n "$pids" ] || break
		kill -$signal $pids 2>/dev/null || true
		sleep 1
	done
	if [ -n "${KEEP-}" ]; then
		echo "walk-cold: kept $dir" >&2
	else
		rm -rf --one-file-system "$dir"
	fi
	left=$(diff <(echo "$before") <(state | sort) | sed -n 's/^> //p') || true
	[ -n "$left" ] || exit $status
	fail "this remains, or others made it meanwhile: $(echo "$left" | wc -l), such as"$'\n'"$(echo "$left" | head -n 20)"
}
before=$(state | sort)
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

archive=$(scripts/debian-archive.sh)
suite=$(. /etc/os-release && echo "$VERSION_CODENAME")
debootstrap --variant=minbase --include=ca-certificates,git,make "$suite" "$dir/base" "$archive" >"$log" 2>&1 ||
	{ tail -n 5 "$log" >&2; fail "debootstrap failed"; }
# Names and certificate authorities are those of the machine: without them a
# machine behind a proxy reaches no registry.
cp -L /etc/resolv.conf /etc/hosts "$dir/base/etc/"
if [ -d /usr/local/share/ca-certificates ]; then
	cp -a /usr/local/share/ca-certificates/. "$dir/base/usr/local/share/ca-certificates/"
	chroot "$dir/base" update-ca-certificates >/dev/null 2>&1
fi
say "a minimal Debian $suite of $(du -shx "$dir/base" | cut -f1) stands in $dir"

# The root becomes that of a mount namespace, because the test cluster makes
# further ones, which begin at it. The mounts end with the namespace.
inside='
set -eu
mount --bind "$1" "$1"
cd "$1"
mkdir -p before
mount --rbind /dev dev
mount --rbind /sys sys
mount -t proc proc proc
mount -t tmpfs -o mode=755 tmpfs run
mount -t tmpfs tmpfs tmp
pivot_root . before
umount -l /before
cd /srv/tenon
shift
exec env -i HOME=/root TERM=dumb PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"'
within() { unshare -m --propagation private sh -c "$inside" sh "$root" "$@" </dev/null; }

# clean NAME: makes a root without any cache.
clean() { root=$dir/$1 && cp -a "$dir/base" "$root"; }

# clone: makes a fresh clone in the root.
clone() {
	local since=$EPOCHREALTIME
	rm -rf "$root/srv/tenon"
	git clone -q --no-local . "$root/srv/tenon"
	git -C "$root/srv/tenon" checkout -q "$(git rev-parse HEAD)"
	. scripts/typed.sh
	took "$since" "git clone, of the folder of this machine"
}

# is_clean: the root has neither Go nor caches, but the cgroups of the machine.
is_clean() {
	within sh -ec '
		! command -v go && [ -z "$(ls -A "$HOME" | grep -v "^[.]")" ] && [ ! -e "$HOME/.cache" ] && ls /sys/fs/cgroup >/dev/null ||
			{ echo "walk-cold: the root is not clean: it has Go or files in $HOME, or no cgroups" >&2; exit 1; }
		git log -1 --format="walk-cold: %h, %s"
		apt-get -qq update && echo "walk-cold: missing: $(scripts/install-deps.sh --missing cluster | tr "\n" " ")"'
}

# walk NAME COMMAND...: runs a command in the clone. $dir/NAME.txt gets its times.
walk() {
	local name=$1
	shift
	say "$name: $*"
	within "$@" 2>&1 | tee "$dir/$name.log"
	grep -E '^== |^build.sh: .* in [0-9]+ s$' "$dir/$name.log" >"$dir/$name.txt" || true
	say "$name: done"
}

clean cluster
clone
is_clean
if [ $# -gt 0 ]; then
	walk command "$@"
	exit
fi
walk cold scripts/walk-cluster.sh
clone
walk warm scripts/walk-cluster.sh
rm -rf --one-file-system "$root"
clean machine
clone
is_clean
walk machine scripts/walk-machine.sh

# seconds NAME TEXT: what a walk took for the line with this text.
seconds() { awk -v text="$2" 'substr($0, index($0, " s  ") + 4) == text { print $2; exit }' "$dir/$1.txt"; }
way='from the first command to batch resources on the node'
built=$(sed -n 's/^build.sh: k8s in \([0-9]*\) s$/\1/p' "$dir/cold.txt")
echo
echo "| seconds | cold | warm |"
echo "| --- | --- | --- |"
sed -n 's/^== *[0-9.]* s  //p' "$dir/cold.txt" | while read -r line; do
	echo "| \`$line\` | $(seconds cold "$line") | $(seconds warm "$line") |"
done
sed -n 's/^build.sh: \(.*\) in \([0-9]*\) s$/| build of \1, in the first line | \2 | |/p' "$dir/cold.txt"
sed -n 's/^== *\([0-9.]*\) s  \(.*\)/| `\2` | \1 | |/p' "$dir/machine.txt"
echo
cold=$(seconds cold "$way") warm=$(seconds warm "$way")
awk -v cold="$cold" -v built="${built:-0}" -v warm="$warm" 'BEGIN {
	printf "From a fresh clone to batch resources: %.0f s cold, of which the build of Kubernetes %d s and the rest %.0f s (bar: 720 s); %.0f s warm (bar: 60 s).\n", cold, built, cold - built, warm }'
