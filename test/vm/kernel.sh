#!/bin/sh
# Prints the path of the kernel image that the VM tests boot: Debian's
# unmodified cloud kernel, kept in $TENON_CACHE (default: the user's cache
# directory). Fetches it when it is not there, through apt with a private
# state directory: nothing on the machine is installed or upgraded, and no
# root is needed.
#
#	kernel.sh            fetch if missing, print the path
#	kernel.sh --cached   print the path, fail if it is not cached
#	kernel.sh --loop     print the path of its module loop.ko, fail if that is
#	                     not cached: without it a guest has no block device
#
# TENON_VM_KERNEL=FILE overrides everything: that image is used.
set -eu

release=6.18.15+deb13-cloud-amd64    # what the tests were written against
series='6\.18\.[0-9]*+deb13-cloud-amd64' # taken, newest first, when that has left the archive
suite=trixie-backports
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
budget=120 # seconds a fetch may take before it is called slow

here=$(cd "$(dirname "$0")" && pwd)
cache=${TENON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon}/kernel

say() { echo "kernel.sh: $*" >&2; }
fail() { say "$*"; exit 1; }

# valid FILE: a bzImage (magic "HdrS" at 0x202) that matches its checksum.
valid() {
	[ "$(dd if="$1" bs=1 skip=514 count=4 2>/dev/null)" = HdrS ] || return 1
	(cd "${1%/*}" && sha256sum --status -c "${1##*/}.sha256" 2>/dev/null)
}

# module IMAGE: where the module loop.ko of an image is kept.
module() { echo "${1%/*}/loop-${1##*/vmlinuz-}.ko"; }

# cached prints the best valid image in the cache: the preferred release, or
# the newest of the series; one with its module before one without.
cached() { whole 2>/dev/null || best; }

whole() { best module; }

best() {
	for image in "$cache/vmlinuz-$release" $(ls "$cache" 2>/dev/null | grep "^vmlinuz-$series\$" | grep -vxF "vmlinuz-$release" | sort -rV | sed "s|^|$cache/|"); do
		[ -f "$image" ] || continue
		[ -z "${1-}" ] || [ -s "$(module "$image")" ] || continue
		valid "$image" && echo "$image" && return 0
		say "damaged: $image"
	done
	return 1
}

# private DIR URI: an apt state below DIR that knows only the wanted suite.
# How the machine reaches its mirror (proxies, dates, credentials) is kept.
private() {
	mkdir -p "$1/etc/apt.conf.d" "$1/etc/preferences.d" "$1/etc/trusted.gpg.d" "$1/lib/lists/partial" "$1/cache/archives/partial"
	: >"$1/status"
	echo "deb [arch=amd64 signed-by=$keyring] $2 $suite main" >"$1/etc/sources.list"
	{
		apt-config dump | grep '^Acquire::' | grep -Ev '^Acquire::(IndexTargets|Changelogs|CompressionTypes|Languages)' || true
		cat <<-CONF
			Dir::Etc "$1/etc";
			Dir::Etc::netrc "/etc/apt/auth.conf";
			Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
			Dir::State "$1/lib";
			Dir::State::status "$1/status";
			Dir::Cache "$1/cache";
			Acquire::Languages "none";
			Acquire::Retries "3";
			APT::Architecture "amd64";
			APT::Sandbox::User "root";
			Debug::NoLocking "true";
		CONF
	} >"$1/apt.conf"
	export APT_CONFIG="$1/apt.conf"
}

fetch() {
	for tool in apt-get apt-config dpkg-deb sha256sum flock xz; do
		command -v $tool >/dev/null || fail "needs $tool: this is not a Debian or Ubuntu machine; set TENON_VM_KERNEL to a bzImage instead"
	done
	uri=$("$here/../../scripts/debian-archive.sh") || fail "nowhere to take the kernel from; set TENON_VM_KERNEL to a bzImage instead"
	[ -r $keyring ] || fail "needs $keyring: install debian-archive-keyring"

	work=$(mktemp -d "$cache/partial.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' INT TERM HUP
	private "$work" "$uri"
	# APT::Update::Post-Invoke of the machine is left out with its apt.conf.d.
	apt-get -qq update >&2 || fail "apt-get update for $suite failed"

	known=$(apt-cache pkgnames "linux-image-6.18." | sed -n "s/^linux-image-\($series\)\$/\1/p" | sort -rV)
	if ! echo "$known" | grep -qxF "$release"; then
		say "$release has left the archive"
		release=$(echo "$known" | head -n 1)
		[ -n "$release" ] || fail "no 6.18 cloud kernel in $suite"
	fi
	say "fetching linux-image-$release"
	(cd "$work" && apt-get -qq download "linux-image-$release" >&2) || fail "apt-get download linux-image-$release failed"
	image=$cache/vmlinuz-$release
	dpkg-deb --fsys-tarfile "$work"/linux-image-*.deb | tar -xOf - "./boot/vmlinuz-$release" >"$work/vmlinuz-$release" ||
		fail "linux-image-$release holds no boot/vmlinuz-$release"
	(cd "$work" && sha256sum "vmlinuz-$release" >"vmlinuz-$release.sha256")
	dpkg-deb --fsys-tarfile "$work"/linux-image-*.deb | tar -xOf - --wildcards "*/kernel/drivers/block/loop.ko.xz" | xz -dc >"$work/loop.ko" ||
		fail "linux-image-$release holds no module loop.ko.xz"
	valid "$work/vmlinuz-$release" || fail "linux-image-$release: not a bzImage"
	mv "$work/loop.ko" "$(module "$image")"
	mv "$work/vmlinuz-$release.sha256" "$work/vmlinuz-$release" "$cache/"
}

case ${1-} in
'' | --cached | --loop) ;;
*) fail "usage: kernel.sh [--cached | --loop]" ;;
esac

if [ -n "${TENON_VM_KERNEL-}" ]; then
	[ -r "$TENON_VM_KERNEL" ] || fail "cannot read TENON_VM_KERNEL=$TENON_VM_KERNEL"
	[ "${1-}" != --loop ] || fail "TENON_VM_KERNEL comes without modules"
	echo "$TENON_VM_KERNEL"
	exit
fi
case ${1-} in
--cached)
	cached && exit
	fail "no kernel image in $cache; run test/vm/kernel.sh"
	;;
--loop)
	image=$(whole) && module "$image" && exit
	fail "no module loop.ko in $cache; run test/vm/kernel.sh"
	;;
esac
whole 2>/dev/null && exit
[ "$(uname -m)" = x86_64 ] || fail "the VM tests run on amd64 only, this is $(uname -m)"

begun=$(date +%s)
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9
whole 2>/dev/null && exit # another one fetched it meanwhile
rm -rf "$cache"/partial.*  # left by one that was killed: we hold the lock
fetch
took=$(($(date +%s) - begun))
say "$image, $(du -h "$image" | cut -f1), fetched in $took s"
[ $took -le $budget ] || say "slower than its budget of $budget s"
echo "$image"
