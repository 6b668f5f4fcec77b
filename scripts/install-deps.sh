#!/bin/sh
# Installs only the missing packages on a Debian or Ubuntu machine:
#
#	install-deps.sh build     what building needs, and the tests without root
#	install-deps.sh demo      also what the colocation lab runs
#	install-deps.sh cluster   also what the test cluster is built of, and runs
#	install-deps.sh generate  what building needs, and the compilers of bpf/
#	install-deps.sh vm-kernel what building needs, and what compiles a kernel
#	install-deps.sh test      all of that but for the kernel, and what the other tests need
#
# With --missing before the set it prints the packages to install, one per line.
#
# Run it as root or with sudo. It does not leave a service started or enabled.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
keyring=/usr/share/keyrings/debian-archive-keyring.gpg
policy=/usr/sbin/policy-rc.d

say() { echo "install-deps.sh: $*"; }
fail() { echo "install-deps.sh: $*" >&2; exit 1; }
# has COMMAND: succeeds if COMMAND exists. Debian keeps PostgreSQL out of PATH.
has() { PATH=$PATH:/usr/sbin:/sbin$(printf ':%s' /usr/lib/postgresql/*/bin) command -v "$1" >/dev/null; }

as_root() {
	if [ "$(id -u)" = 0 ]; then
		"$@"
	else
		has sudo || fail "run this as root: there is no sudo, and missing is: $missing"
		sudo "$@"
	fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0 "$@"; }

# add PACKAGE…: installs packages; prints the output of apt only if it fails.
add() {
	log=$scratch/install.log
	if ! apt install -y --no-install-recommends --no-remove "$@" >"$log" 2>&1; then
		cat "$scratch"/*.log >&2
		fail "could not install: $*"
	fi
}

# need PACKAGE COMMAND: installs PACKAGE if COMMAND does not exist.
need() { has "$2" || missing="$missing $1"; }

# want PACKAGE FILE: installs PACKAGE if FILE does not exist or is empty.
want() { [ -s "$2" ] || missing="$missing $1"; }

only_say=
[ "${1-}" != --missing ] || { only_say=yes && shift; }
begun=$(date +%s)
missing=
want ca-certificates /etc/ssl/certs/ca-certificates.crt
set=${1-}

programs() { # that the lab measures, and that images are made of
	need nginx-light nginx
	need ffmpeg ffmpeg
}
lab() { # the services and the batch work of the lab; each is a row there
	set -- $(sed -n 's/.*Program *= Program{Name: "\([^"]*\)", Packages: "apt install \([^ ]*\).*/\2 \1/p' "$here"/../internal/lab/work/*.go)
	[ $# -gt 0 ] || fail "no programs found in internal/lab/work"
	while [ $# -gt 0 ]; do
		need "$1" "$2"
		shift 2
	done
}
compiler() {
	need gcc gcc
	want libc6-dev /usr/include/stdio.h
	need make make
}
cluster() {
	programs
	compiler # of runc, which is static
	need pkg-config pkg-config
	want libseccomp-dev /usr/include/seccomp.h
	need busybox-static busybox
	need iproute2 ip
	need util-linux nsenter
	need mount mount
	need nftables nft # of kube-proxy
}
bpf() {
	need clang-19 clang-19
	need llvm-19 llvm-strip-19
	want libbpf-dev /usr/include/bpf/bpf_helpers.h
	want libc6-dev /usr/include/stdio.h
}
kernel() {
	compiler
	need flex flex
	need bison bison
	need bc bc
	need dwarves pahole
	need lz4 lz4
	need patch patch
	need perl perl
	need python3 python3
	need cpio cpio
	need xz-utils xz
	want libelf-dev /usr/include/libelf.h
}
tests() {
	cluster
	bpf
	lab
	need xz-utils xz # xz, lz4 and zstd: for the kernels of Debian
	need lz4 lz4
	need zstd zstd # also for the raw data of experiments
	need cpio cpio
	need qemu-system-x86 qemu-system-x86_64
	need python3 python3 # computes the figures of the pages again
	need prometheus promtool
	need podman podman
	need containerd containerd
	need runc runc
	need e2fsprogs mke2fs
	want systemd /lib/systemd/systemd # in a guest
	need debootstrap debootstrap
	need git git # tells which files are the project's
}
case $set in
build) ;;
demo) programs ;;
cluster) cluster ;;
generate) bpf ;;
vm-kernel) kernel ;;
test) tests ;;
*) fail "usage: install-deps.sh [--missing] build|demo|cluster|generate|vm-kernel|test" ;;
esac
missing=$(echo "$missing" | tr ' ' '\n' | awk 'NF && !seen[$0]++ { printf " %s", $0 }')
go=$("$here/find-go.sh" 2>/dev/null) || missing="$missing Go"

if [ -n "$only_say" ]; then
	echo "$missing" | tr ' ' '\n' | sed '/^$/d'
	exit
fi
scratch=$(mktemp -d)
made_policy=
cleanup() {
	[ -z "$made_policy" ] || as_root rm -f $policy
	rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

# candidate PACKAGE [OPTION…]: prints the version of PACKAGE that apt would
# install.
candidate() {
	pkg=$1
	shift
	apt-cache "$@" policy "$pkg" 2>/dev/null | sed -n 's/^ *Candidate: //p' | grep -v '(none)'
}

# fresh_enough VERSION: succeeds for 2:1.21… or newer.
fresh_enough() { [ "$(echo "$1" | sed -n 's/^\([0-9]*:\)\?1\.\([0-9]*\).*/\2/p')" -ge 21 ] 2>/dev/null; }

# install_go installs Go from the configured suites, or from the backports of
# this release on the configured mirror.
install_go() {
	if fresh_enough "$(candidate golang-go)"; then
		add golang-go
		return
	fi
	versioned=$(apt-cache pkgnames golang-1. | grep -x 'golang-1\.[0-9]*-go' | sort -rV | head -n 1)
	if fresh_enough "${versioned#golang-}"; then
		add "$versioned"
		return
	fi
	codename=$(. /etc/os-release && echo "${VERSION_CODENAME-}")
	if archive=$("$here/debian-archive.sh" 2>/dev/null) && [ -n "$codename" ]; then
		# The index files are separate, so that the machine's sources stay
		# unchanged.
		signed=
		[ ! -r $keyring ] || signed="[signed-by=$keyring] "
		cat /etc/apt/sources.list >"$scratch/sources.list" 2>/dev/null || true
		echo "deb $signed$archive $codename-backports main" >>"$scratch/sources.list"
		mkdir -p "$scratch/lists/partial"
		chmod -R a+rX "$scratch"
		set -- -o "Dir::Etc::SourceList=$scratch/sources.list" -o "Dir::State::Lists=$scratch/lists"
		if apt "$@" update >"$scratch/update.log" 2>&1 && fresh_enough "$(candidate golang-go "$@" -t "$codename-backports")"; then
			add "$@" -t "$codename-backports" golang-go
			return
		fi
	fi
	fail "no Go 1.21 or newer among this machine's packages: install Go into /usr/local/go as https://go.dev/doc/install says, then run this again"
}

if [ -n "$missing" ]; then
	has apt-get || fail "no apt-get: install by hand:$missing"
	say "missing:$missing"
	# One broken source of several may not matter; if it does, add fails.
	apt update >"$scratch/update.log" 2>&1 || true

	# Packages run this file to find out whether they may start their service.
	if [ ! -e $policy ]; then
		made_policy=yes
		printf '#!/bin/sh\nexit 101\n' >"$scratch/policy-rc.d"
		as_root install -m 755 "$scratch/policy-rc.d" $policy
	fi
	case $missing in
	*postgresql*) # no database of the system: the lab makes its own
		conf=/etc/postgresql-common/createcluster.conf
		if [ ! -e $conf ]; then
			echo 'create_main_cluster = false' >"$scratch/createcluster.conf"
			as_root install -D -m 644 "$scratch/createcluster.conf" $conf
		fi
		;;
	esac
	packages=$(echo "$missing" | sed 's/ Go$//')
	[ -z "${packages# }" ] || add $packages
	case $missing in
	*nginx*) # nor at the next boot
		if has systemctl; then as_root systemctl --quiet disable nginx 2>/dev/null || true; fi
		if has update-rc.d; then as_root env PATH="$PATH:/usr/sbin:/sbin" update-rc.d nginx disable >/dev/null 2>&1 || true; fi
		;;
	esac
	if [ -z "$go" ]; then
		install_go
		go=$("$here/find-go.sh")
	fi
	say "installed:$missing, in $(($(date +%s) - begun)) s"
	say "Go is $go, $(cd / && GOTOOLCHAIN=local "$go" env GOVERSION)"
fi
