#!/bin/sh
# Prints the path of a kernel image for the VM tests. Images are kept in
# $TENON_CACHE (default: the user's cache directory).
#
#	kernel.sh [SERIES]              fetch or build if missing, print the path
#	kernel.sh --cached [SERIES]     print the path, fail if it is not cached
#	kernel.sh --module=M [SERIES]   print the path of its module M, fail if that
#	                                is not cached; an empty line: it has none
#
# Without the module loop a guest has no block device, and without virtio_net
# (which needs failover and net_failover) no network; the pods of a node need overlay,
# veth and bridge (which needs llc and stp). 6.18 has all of them.
#
# SERIES is one of Debian's unmodified cloud kernels, fetched through apt with a
# private state directory: 6.18 (default), 7.3, 6.1 or 5.10; or 6.12, which is built
# here (kernel/build.sh) as Debian's has neither sched_ext nor core scheduling.
# Nothing on the machine is installed or upgraded, and no root is needed.
#
# TENON_VM_KERNEL=FILE overrides the default: that image is used.
set -eu
. "$(dirname "$0")/archive.sh"

wanted=
case ${1-} in
--cached | --module=*) wanted=$1 && shift ;;
esac
[ $# -le 1 ] || fail "usage: kernel.sh [--cached | --module=M] [6.18 | 7.3 | 6.1 | 5.10 | 6.12]"

if [ -z "${1-}" ] && [ -n "${TENON_VM_KERNEL-}" ]; then
	[ -r "$TENON_VM_KERNEL" ] || fail "cannot read TENON_VM_KERNEL=$TENON_VM_KERNEL"
	[ "${wanted%%=*}" != --module ] || fail "TENON_VM_KERNEL comes without modules"
	echo "$TENON_VM_KERNEL"
	exit
fi

# release is the release that the tests were written for. If it has left the
# archive, the newest release that matches pattern is used.
series=${1:-6.18} modules=loop budget=120
case $series in
6.18) modules="loop failover net_failover virtio_net llc stp bridge veth overlay" release=6.18.15+deb13-cloud-amd64 pattern='6\.18\.[0-9]*+deb13-cloud-amd64' suite=trixie-backports ;;
7.3) release=7.3.4+deb13-cloud-amd64 pattern='7\.3\.[0-9]*+deb13-cloud-amd64' suite=trixie-backports ;;
6.1) release=6.1.0-50-cloud-amd64 pattern='6\.1\.0-[0-9]*-cloud-amd64' suite=bookworm ;;
5.10) release=5.10.0-32-cloud-amd64 pattern='5\.10\.0-[0-9]*-cloud-amd64' suite=bullseye ;; # no test starts it by itself
6.12)
	recipe=$(cat "$here/kernel/config" "$here/kernel/setcpuid.patch" | sha256sum | cut -c1-12)
	release=6.12.107-tenon-$recipe pattern="6\\.12\\.[0-9]*-tenon-$recipe" suite=trixie modules= budget=1800
	;;
*) fail "no kernel $series: want 6.18, 7.3, 6.1, 5.10 or 6.12" ;;
esac
images=$cache/kernel

# valid FILE: a bzImage (magic "HdrS" at 0x202) that matches its checksum.
valid() {
	[ "$(dd if="$1" bs=1 skip=514 count=4 2>/dev/null)" = HdrS ] || return 1
	(cd "${1%/*}" && sha256sum --status -c "${1##*/}.sha256" 2>/dev/null)
}

# module IMAGE M: prints the path of the module M of an image.
module() { echo "${1%/*}/$2-${1##*/vmlinuz-}.ko"; }

# cached prints the best valid image in the cache: the preferred release, or the
# newest of the series; an image with its modules before one without.
cached() { whole 2>/dev/null || best; }

whole() { best $modules; }

# best [MODULE...]: prints the best image that has all of these modules.
best() {
	for image in "$images/vmlinuz-$release" $(ls "$images" 2>/dev/null | grep "^vmlinuz-$pattern\$" | grep -vxF "vmlinuz-$release" | sort -rV | sed "s|^|$images/|"); do
		[ -f "$image" ] || continue
		for m in "$@"; do [ -s "$(module "$image" "$m")" ] || continue 2; done
		valid "$image" && echo "$image" && return 0
		say "damaged: $image"
	done
	return 1
}

# keep moves the image and its modules, if any, from $work to the cache.
keep() {
	image=$images/vmlinuz-$release
	mv "$work/vmlinuz" "$work/vmlinuz-$release"
	(cd "$work" && sha256sum "vmlinuz-$release" >"vmlinuz-$release.sha256")
	valid "$work/vmlinuz-$release" || fail "$release: not a bzImage"
	for m in $modules; do mv "$work/$m.ko" "$(module "$image" "$m")"; done
	mv "$work/vmlinuz-$release.sha256" "$work/vmlinuz-$release" "$images/"
}

fetch() {
	archive $suite
	# Since 6.19 Debian's kernels are split, and linux-image is empty.
	kind=image kinds=image
	[ $series != 7.3 ] || kind=binary kinds=modules
	known=$(apt-cache pkgnames "linux-$kind-$series." | sed -n "s/^linux-$kind-\($pattern\)\$/\1/p" | sort -rV)
	if ! echo "$known" | grep -qxF "$release"; then
		say "$release has left the archive"
		release=$(echo "$known" | head -n 1)
		[ -n "$release" ] || fail "no $series cloud kernel in $suite"
	fi
	say "fetching linux-$kind-$release"
	deb=$(download "linux-$kind-$release")
	inside "$deb" "*/vmlinuz*" >"$work/vmlinuz" || fail "linux-$kind-$release holds no vmlinuz"
	[ $kinds = $kind ] || deb=$(download "linux-$kinds-$release")
	for m in $modules; do
		if inside "$deb" "*/kernel/*/$m.ko.xz" >"$work/$m.ko.xz" 2>/dev/null; then
			xz -d "$work/$m.ko.xz"
		else
			inside "$deb" "*/kernel/*/$m.ko" >"$work/$m.ko" || fail "linux-$kinds-$release holds no module $m"
		fi
	done
}

build() {
	archive $suite
	deb=$(download linux-source-6.12)
	# The version of Debian's source package is that of the kernel.
	version=$(dpkg-deb -f "$deb" Version | sed 's/-[^-]*$//')
	release=$version-tenon-$recipe
	"$here/kernel/build.sh" "$deb" "$work" >&2 || fail "could not build linux $version"
}

case $wanted in
--cached)
	cached && exit
	fail "no kernel image $series in $images; run test/vm/kernel.sh $series"
	;;
--module=*)
	m=${wanted#*=}
	case " $modules " in
	"  ") cached >/dev/null && echo && exit ;;
	*" $m "*) image=$(whole) && module "$image" "$m" && exit ;;
	*) fail "no module $m is taken from $series" ;;
	esac
	fail "no module $m $series in $images; run test/vm/kernel.sh $series"
	;;
esac
whole 2>/dev/null && exit
[ "$(uname -m)" = x86_64 ] || fail "the VM tests run on amd64 only, this is $(uname -m)"

begun=$(date +%s)
lock kernel "$series"
whole 2>/dev/null && exit # another process fetched it in the meantime
if [ -n "$modules" ]; then fetch; else build; fi
keep
took=$(($(date +%s) - begun))
say "$image, $(du -h "$image" | cut -f1), in $took s"
[ $took -le $budget ] || say "slower than its budget of $budget s"
echo "$image"
