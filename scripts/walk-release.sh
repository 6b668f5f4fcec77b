#!/usr/bin/env bash
# walk-release: builds a whole release twice, in this tree and in a clone, and compares
# them. It starts each program for arm64 in QEMU's emulation of a process, and installs
# the plugin by Krew. Where neither is built already, it takes an hour.
set -euo pipefail
cd "$(dirname "$0")/.."
version=v0.0.0-walk.1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

make --no-print-directory release VERSION=$version
git clone --quiet . "$work/clone"
make --no-print-directory -C "$work/clone" release VERSION=$version
for file in SHA256SUMS tenon-$version-bundle.tar; do
	cmp "bin/release/$file" "$work/clone/bin/release/$file"
done
(cd bin/release && sha256sum --quiet -c SHA256SUMS)
echo "two builds have the same bytes"

# The package registers its emulator for all programs of the machine, so it is unpacked
# and not installed.
emulator=$(command -v qemu-aarch64-static) || {
	(cd "$work" && apt-get -qq download qemu-user-static && dpkg-deb -x qemu-user-static_*.deb .)
	emulator=$work/usr/bin/qemu-aarch64-static
}
arm=bin/programs/linux-arm64
for program in "$arm"/*; do
	"$emulator" "$program" --version
done
# The emulator has the kernel of this machine, so the answers are those of amd64.
timeout 300 "$emulator" "$arm/tenon" doctor >"$work/doctor" || [ $? = 1 ]
grep -q . "$work/doctor"
timeout 60 "$emulator" "$arm/tenond" config default >"$work/tenon.yaml"
timeout 60 "$emulator" "$arm/tenon" plan --help >/dev/null

KREW_ROOT=$work/krew go run sigs.k8s.io/krew/cmd/krew@v0.4.3 install --manifest=bin/release/krew/tenon.yaml \
	--archive="bin/release/kubectl-tenon-$version-linux-amd64.tar.gz"
"$work/krew/bin/kubectl-tenon" --version | grep -F $version
