#!/bin/sh
# build.sh DEB DIR: builds DIR/vmlinuz from a linux-source package with the
# config and the patch beside this script. Needs no root; some CPU minutes and
# 3 GB in DIR, which are gone afterwards.
set -eu

deb=$1 dir=$2
here=$(cd "$(dirname "$0")" && pwd)
say() { echo "build.sh: $*"; }

for need in gcc:gcc make:make flex:flex bison:bison bc:bc pahole:dwarves lz4:lz4 patch:patch perl:perl python3:python3 cpio:cpio; do
	command -v "${need%:*}" >/dev/null || missing="${missing-} ${need#*:}"
done
[ -e /usr/include/libelf.h ] || missing="${missing-} libelf-dev"
if [ -n "${missing-}" ]; then
	say "missing:$missing; install them, or run make vm-kernel-built"
	exit 1
fi
# Whoever calls this from make has settings of its own.
unset MAKEFLAGS MFLAGS MAKELEVEL ARCH CROSS_COMPILE CGO_ENABLED
export LC_ALL=C

source=$dir/source build=$dir/build log=$dir/log
mkdir "$source" "$build"
say "unpacking the sources"
# A quarter of them are lists of one driver's registers.
dpkg-deb --fsys-tarfile "$deb" | tar -xOf - --wildcards './usr/src/linux-source-*.tar.xz' |
	xz -dc -T0 | tar -x -C "$source" --strip-components=1 --exclude='*/drivers/gpu/drm/amd/include'
rm -f "$deb"
patch -d "$source" -p1 --quiet <"$here/setcpuid.patch"

make -C "$source" O="$build" KCONFIG_ALLCONFIG="$here/config" allnoconfig >"$log"
# An option that its dependencies have dropped would be missed in a test, later.
if grep '^CONFIG_' "$here/config" | grep -vxFf "$build/.config"; then
	say "these options were not accepted"
	exit 1
fi

# progress prints a line a minute. Its last sleep outlives it, and must keep
# neither the output nor the caller's lock.
progress() {
	while sleep 60 >/dev/null 2>&1 9>&-; do
		say "$(grep -c '^  [A-Z]' "$log") steps of about 2000, $(($(date +%s) - begun)) s"
	done
}
begun=$(date +%s)
say "compiling"
progress &
clock=$!
trap 'kill $clock 2>/dev/null' EXIT
trap 'exit 1' INT TERM HUP
if ! nice -n 19 make -C "$build" -j"$(nproc)" bzImage >>"$log" 2>&1; then
	tail -n 40 "$log"
	exit 1
fi
mv "$build/arch/x86/boot/bzImage" "$dir/vmlinuz"
times >"$dir/times"
say "compiled in $(($(date +%s) - begun)) s, CPU time $(tail -n 1 "$dir/times")"
rm -rf "$source" "$build"
