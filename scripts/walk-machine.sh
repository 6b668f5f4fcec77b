#!/usr/bin/env bash
# walk-machine: types the commands of docs/first-steps.md about one machine like a
# reader, in the order of the page, and prints how long each took. It fails if a
# command fails, or if the last one leaves something behind. Of the two ways to start
# the batch job in batch.slice, it types the one of this machine. It takes a quarter
# of an hour, and needs root or sudo.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/typed.sh
page=docs/first-steps.md
[ "$(id -u)" = 0 ] && sudo= || sudo="sudo -E env PATH=$PATH "
begun=$EPOCHREALTIME
work=$(mktemp -d)
tenond= batch= loop=

# end SIGNAL PID: ends a process of this script, if there is one, and waits for it.
end() {
	[ -z "${2-}" ] || { kill "-$1" "$2" 2>/dev/null || true; wait "$2" 2>/dev/null || true; }
}

end_batch() {
	end TERM "$loop"
	loop=
	[ ! -d /run/systemd/system ] || ${sudo}systemctl stop batch-job 2>/dev/null || true
}

cleanup() {
	end INT "$tenond"
	end TERM "$batch"
	end_batch
	[ ! -x bin/tenon ] || ${sudo}bin/tenon restore >/dev/null || true
	rm -rf "$work" tenon.yaml
}
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

[ ! -e tenon.yaml ] || { echo "walk-machine: tenon.yaml exists, and the page writes it" >&2; exit 1; }
met=
while read -r typed; do
	line=${typed/#sudo /$sudo}
	case $line in
	*systemd-run* | *in-cgroup.sh*)
		if [ -d /run/systemd/system ]; then
			[[ $line == *systemd-run* ]] || continue
			shown "$line"
		else
			[[ $line == *in-cgroup.sh* ]] || continue
			echo "\$ $line"
			bash -c "exec $line" &
			loop=$!
		fi
		sleep 3 # as long as it takes to read on
		met+=4
		;;
	*' &') # the batch job that the service beside it displaces
		echo "\$ $line"
		bash -c "exec ${line% &}" &
		batch=$!
		sleep 1
		met+=1
		;;
	*'tenon run --qos LS'*) # timeout(1) ends it
		shown "$line || [ \$? = 124 ]"
		end TERM "$batch"
		batch=
		met+=2
		;;
	*'bin/tenond --config tenon.yaml')
		echo "\$ $line"
		$line >"$work/tenond.log" 2>&1 &
		tenond=$!
		since=$EPOCHREALTIME
		until ${sudo}bin/tenon status >/dev/null 2>&1; do
			kill -0 "$tenond" || { cat "$work/tenond.log" >&2; exit 1; }
			sleep 0.1
		done
		took "$since" "${line#"$sudo"} (until it answers)"
		met+=3
		;;
	*'tenon top')
		shown "TERM=xterm script -qec 'stty rows 40 cols 120; timeout --foreground -s INT 3 $line' /dev/null </dev/null >$work/top || [ \$? = 124 ]"
		grep -q batch.slice "$work/top"
		met+=5
		;;
	*'tenon restore')
		end INT "$tenond"
		tenond=
		end_batch
		shown "$line"
		met+=6
		;;
	*) shown "$line" ;;
	esac </dev/null
done < <(typed "$page" '## One machine' '## A cluster')
[ "$met" = 123456 ] || { echo "walk-machine: the page has other commands than this script knows: $met" >&2; exit 1; }
left=$(${sudo}bin/tenon restore --dry-run)
echo "$left"
[[ $left == *"no cgroup has a note of Tenon"* ]]
took "$begun" "all of $page about one machine"
