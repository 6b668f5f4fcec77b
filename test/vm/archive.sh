# Sourced by the scripts that take packages from the Debian archive without
# installing them. It changes nothing on the machine and needs no root.

say() { echo "${0##*/}: $*" >&2; }
fail() { say "$*"; exit 1; }

here=$(cd "$(dirname "$0")" && pwd)
cache=${TENON_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/tenon}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# lock NAME: only one process on this machine runs the rest of the script at a
# time. It removes the remains of a killed one. $work is an empty directory in
# the cache that exists as long as the script runs.
lock() {
	mkdir -p "$cache/$1"
	exec 9>"$cache/$1/lock-$2"
	flock 9
	rm -rf "$cache/$1/partial-$2".*
	work=$(mktemp -d "$cache/$1/partial-$2.XXXXXX")
	trap 'rm -rf "$work"' EXIT
	trap 'exit 1' INT TERM HUP
}

# archive SUITE…: makes an apt state in $work that knows only these suites, for
# the following apt commands. It keeps the machine's settings for reaching its
# mirror (proxies, dates, credentials).
archive() {
	for tool in apt-get apt-config dpkg-deb sha256sum xz; do
		command -v $tool >/dev/null || fail "needs $tool: this is not a Debian or Ubuntu machine"
	done
	[ -r $keyring ] || fail "needs $keyring: install debian-archive-keyring"
	uri=$("$here/../../scripts/debian-archive.sh") || fail "nowhere to take packages from"
	apt=$work/apt
	mkdir -p "$apt/etc/apt.conf.d" "$apt/etc/preferences.d" "$apt/etc/trusted.gpg.d" "$apt/lib/lists/partial" "$apt/cache/archives/partial"
	: >"$apt/status"
	for suite in "$@"; do
		echo "deb [arch=amd64 signed-by=$keyring] $uri $suite main"
	done >"$apt/etc/sources.list"
	{
		apt-config dump | grep '^Acquire::' | grep -Ev '^Acquire::(IndexTargets|Changelogs|CompressionTypes|Languages)' || true
		cat <<-CONF
			Dir::Etc "$apt/etc";
			Dir::Etc::netrc "/etc/apt/auth.conf";
			Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
			Dir::State "$apt/lib";
			Dir::State::status "$apt/status";
			Dir::Cache "$apt/cache";
			Acquire::Languages "none";
			Acquire::Retries "3";
			APT::Architecture "amd64";
			APT::Install-Recommends "false";
			APT::Sandbox::User "root";
			Debug::NoLocking "true";
		CONF
	} >"$apt/apt.conf"
	export APT_CONFIG="$apt/apt.conf"
	# The machine's apt.conf.d is not used, and so neither is its
	# APT::Update::Post-Invoke.
	apt-get -qq update >&2 || fail "apt-get update for $* failed"
}

# download PACKAGE: downloads the package and prints its path.
download() {
	(mkdir "$work/$1" && cd "$work/$1" && apt-get -qq download "$1" >&2) || fail "apt-get download $1 failed"
	ls "$work/$1"/*.deb
}

# inside DEB PATTERN: prints the content of the file in a package that matches.
inside() { dpkg-deb --fsys-tarfile "$1" | tar -xOf - --wildcards "$2"; }
