#!/usr/bin/env bash
# walk-cold [DIR [COMMAND...]]: a newcomer's way from a fresh clone to batch
# resources, timed without any cache. It makes a minimal Debian in a new folder DIR
# (default: below /var/tmp), clones the commit of this tree into it, and runs
# COMMAND (default: scripts/walk-cluster.sh) in the clone as root, with an empty
# home. The machine lends its kernel, its devices and its network; none of its
# programs and caches is seen there. It needs root, debootstrap, 15 GB in DIR, and
# package registries that can be reached. It removes DIR afterwards, unless KEEP=1.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf '== %6d s  walk-cold: %s\n' $((SECONDS - begun)) "$*"; }
fail() { echo "walk-cold: $*" >&2; exit 1; }
begun=$SECONDS
[ "$(id -u)" = 0 ] || fail "run this as root"
command -v debootstrap >/dev/null || fail "no debootstrap: apt-get install debootstrap"
[ -z "$(git status --porcelain)" ] || echo "walk-cold: the tree has changes that are not committed: the clone lacks them" >&2
root=${1-$(mktemp -d /var/tmp/tenon-cold-XXXXXX)}
shift $(($# > 0))
[ $# -gt 0 ] || set -- scripts/walk-cluster.sh
mkdir -p "$root"
[ -z "$(ls -A "$root")" ] || fail "$root is not empty"
root=$(realpath "$root")
# What the walk mounts is in a mount namespace of its own, which ends with it.
trap '[ -n "${KEEP-}" ] || rm -rf --one-file-system "$root"' EXIT

archive=$(scripts/debian-archive.sh)
debootstrap --variant=minbase --include=ca-certificates,git,make stable "$root" "$archive" >"$root.log" 2>&1 ||
	{ tail -n 5 "$root.log" >&2; fail "debootstrap failed: see $root.log"; }
rm -f "$root.log"
# Names and certificate authorities are those of the machine: without them a
# machine behind a proxy reaches no registry.
cp -L /etc/resolv.conf /etc/hosts "$root/etc/"
if [ -d /usr/local/share/ca-certificates ]; then
	cp -a /usr/local/share/ca-certificates/. "$root/usr/local/share/ca-certificates/"
	chroot "$root" update-ca-certificates >/dev/null 2>&1
fi
say "a Debian of $(du -shx "$root" | cut -f1) stands in $root"
git clone -q --no-local . "$root/srv/tenon"
git -C "$root/srv/tenon" checkout -q "$(git rev-parse HEAD)"

# The folder becomes the root of a mount namespace, because the test cluster makes
# further ones, which begin at that root.
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
within() { unshare -m --propagation private sh -c "$inside" sh "$root" "$@"; }

within sh -ec '
	! command -v go && [ -z "$(ls -A /root | grep -v "^[.]")" ] && ls /sys/fs/cgroup >/dev/null ||
		{ echo "walk-cold: the root is not clean: it has Go or files in /root, or no cgroups" >&2; exit 1; }
	git log -1 --format="walk-cold: %h, %s"
	apt-get -qq update && echo "walk-cold: missing: $(scripts/install-deps.sh --missing cluster | tr "\n" " ")"'
say "its clone is ready: $*"
walk=$SECONDS
within "$@"
say "$* took $((SECONDS - walk)) s"
