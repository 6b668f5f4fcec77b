#!/bin/sh
# in-cgroup.sh NAME COMMAND...: runs a command in a cgroup of this name, as
# systemd-run --slice does where there is systemd. On cgroup v1 each hierarchy has
# the cgroup. When the command has ended, or on Ctrl-C or SIGTERM, it ends all that is
# in the cgroup, and removes it. It needs root.
set -eu
[ $# -ge 2 ] || { echo "usage: in-cgroup.sh NAME COMMAND..." >&2; exit 2; }
name=$1 made= first=
shift

clear_up() {
	signal=TERM
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		pids=$([ -z "$first" ] || cat "$first/cgroup.procs")
		[ -n "$pids" ] || break
		kill -$signal $pids 2>/dev/null || true
		sleep 0.2
		signal=KILL
	done
	wait
	for dir in $made; do rmdir "$dir" || true; done
}
trap clear_up EXIT
trap 'exit 1' INT TERM HUP

for dir in $(awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts); do
	[ -e "$dir/cgroup.procs" ] && [ ! -e "$dir/$name" ] && mkdir "$dir/$name" 2>/dev/null || continue
	made="$made $dir/$name" first=${first:-$dir/$name}
	for file in cpuset.cpus cpuset.mems; do # on v1 a new cgroup has none
		[ ! -e "$dir/$file" ] || cat "$dir/$file" >"$dir/$name/$file"
	done
done
[ -n "$made" ] || { echo "in-cgroup.sh: cannot make a cgroup $name: this needs root, and there must be none of that name" >&2; exit 1; }
MADE=$made sh -c 'for dir in $MADE; do echo $$ >"$dir/cgroup.procs"; done; exec "$@"' sh "$@" &
wait $!
