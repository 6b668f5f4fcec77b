#!/bin/sh
# Prints the path of a QEMU 10 that counts instructions. With -icount, an older
# QEMU lets one CPU of the guest run for whole ticks while the others wait, so
# its clock cannot be used for measurements. The program is an unpacked tree
# with its own libraries in $TENON_CACHE (default: the user's cache directory),
# fetched through apt with a private state directory. It changes nothing on the
# machine and needs no root.
#
#	qemu.sh            fetch if missing, print the path
#	qemu.sh --cached   print the path, fail if it is not cached
set -eu
. "$(dirname "$0")/archive.sh"

suites="bookworm bookworm-backports"
trees=$cache/qemu
budget=180 # seconds; a longer download is reported as slow

# cached prints the newest tree that works.
cached() {
	for program in $(ls -d "$trees"/10.*/qemu 2>/dev/null | sort -rV); do
		"$program" --version >/dev/null 2>&1 && echo "$program" && return
		say "damaged: ${program%/qemu}"
	done
	return 1
}

case ${1-} in
'') ;;
--cached)
	cached && exit
	fail "no QEMU 10 in $trees; run test/vm/qemu.sh"
	;;
*) fail "usage: qemu.sh [--cached]" ;;
esac
cached && exit
[ "$(uname -m)" = x86_64 ] || fail "the VM tests run on amd64 only, this is $(uname -m)"

begun=$(date +%s)
lock qemu tree
cached && exit # another process fetched it in the meantime
archive $suites
say "fetching qemu-system-x86 and all it needs"
# This apt knows no installed package, so it downloads all dependencies
# including libc.
apt-get -qq install -y --download-only -t "${suites#* }" qemu-system-x86 >&2 || fail "apt-get download qemu-system-x86 failed"
mkdir "$work/tree"
for deb in "$work"/apt/cache/archives/*.deb; do
	case ${deb##*/} in
	qemu-system-x86_*) version=$(dpkg-deb -f "$deb" Version) ;;
	esac
	# Only root could set owners and make devices.
	dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$work/tree" --no-same-owner --keep-directory-symlink || fail "unpack ${deb##*/}"
done
cat >"$work/tree/qemu" <<'WRAPPER'
#!/bin/sh
# qemu-system-x86_64 with the loader, the libraries and the firmware beside it.
tree=${0%/*}
export QEMU_MODULE_DIR="$tree/usr/lib/x86_64-linux-gnu/qemu"
exec "$tree/lib64/ld-linux-x86-64.so.2" --library-path "$tree/lib/x86_64-linux-gnu:$tree/usr/lib/x86_64-linux-gnu" \
	"$tree/usr/bin/qemu-system-x86_64" -L "$tree/usr/share/qemu" -L "$tree/usr/share/seabios" -L "$tree/usr/lib/ipxe/qemu" "$@"
WRAPPER
chmod 755 "$work/tree/qemu"
"$work/tree/qemu" --version >/dev/null || fail "the fetched QEMU does not run"
name=${version#*:}
name=${name%%+*} # 10.0.2
rm -rf "${trees:?}/$name"
mv "$work/tree" "$trees/$name"
took=$(($(date +%s) - begun))
say "$trees/$name, $(du -sh "$trees/$name" | cut -f1), in $took s"
[ $took -le $budget ] || say "slower than its budget of $budget s"
echo "$trees/$name/qemu"
