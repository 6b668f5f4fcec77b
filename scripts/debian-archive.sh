#!/bin/sh
# Prints the URI of the Debian archive in the apt configuration of this machine,
# in any format of its sources. The other scripts take packages from there that
# the configured suites do not have.
set -eu

if ! command -v apt-get >/dev/null; then
	echo "debian-archive.sh: no apt-get: this is not a Debian or Ubuntu machine" >&2
	exit 1
fi
uri=$(apt-get update --print-uris 2>/dev/null |
	sed -n "s|^'\(.*\)/dists/\([^/]*\)/InRelease' .*|\1 \2|p" |
	awk '$2 ~ /^(oldoldstable|oldstable|stable|testing|unstable|sid|bullseye|bookworm|trixie|forky)(-updates|-backports)?$/ { print $1; exit }')
if [ -z "$uri" ]; then
	echo "debian-archive.sh: no Debian archive among this machine's apt sources (apt-get update --print-uris lists them)" >&2
	exit 1
fi
echo "$uri"
