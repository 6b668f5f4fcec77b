#!/usr/bin/env bash
# walk-cluster: types the commands of docs/first-steps.md about a cluster like a
# reader, in the order of the page, then removes Tenon by the commands of
# docs/upgrade.md, and prints how long each took. It fails if a command fails, if
# no node has batch resources, or if a pod does not run, except a batch pod for
# which the node has no idle CPU. It needs what make cluster needs; the cluster is
# gone afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/typed.sh
page=docs/first-steps.md
work=$(mktemp -d)
sudo=
[ "$(id -u)" = 0 ] || sudo="sudo -E env PATH=$PATH"
trap 'make --no-print-directory cluster-down; rm -rf "$work"' EXIT

begun=$EPOCHREALTIME
first=$(typed "$page" '## A cluster' '### Offer' | head -n 1)
[ "$first" = "make cluster TENON=1" ] || { echo "walk-cluster: the page begins with: $first" >&2; exit 1; }
$first
took "$begun" "$first"

# The manifest of the two pods is the first block of YAML of its section.
awk '/^### A service/ { step = 1 } step && /^```yaml/ { on = 1; next } /^```/ && on { exit } on' "$page" >"$work/pods.yaml"
{
	echo 'set -euo pipefail'
	echo ". $PWD/scripts/typed.sh"
	echo "cd $work"
	typed "$page" '### Offer' '### A CPU' | sed 's/NODE-NAME/node-0/; s/.*/shown '"'"'&'"'"'/' | while read -r line; do
		case $line in
		*custom-columns*) # whose own quotes must stay
			echo "shown $(printf %q "$(typed "$page" '### Offer' '### A CPU' | grep custom-columns)")"
			echo 'kubectl get nodes -o jsonpath="{.items[*].status.allocatable.kubernetes\.io/batch-memory}" | grep -q "[1-9]"'
			echo "took $begun 'from the first command to batch resources on the node'"
			;;
		*"kubectl get pods"*)
			echo 'kubectl wait --for=condition=Ready --timeout=1m pod/web'
			# On a machine that others keep busy, no batch-cpu is left for encode.
			echo 'kubectl wait --for=condition=Ready --timeout=30s pod/encode || { kubectl describe pod encode | grep "Insufficient kubernetes.io/batch-cpu" && kubectl tenon explain node node-0 && echo "NOTE no idle CPU for encode"; }'
			echo "$line"
			;;
		*) echo "$line" ;;
		esac
	done
	# The cluster itself is removed by the trap.
	{ typed "$page" '### Take it away' | grep -v '^make '; typed docs/upgrade.md '## Remove it' '## With GitOps'; } |
		sed 's/.*/shown '"'"'&'"'"'/'
} >"$work/script"
$sudo bin/cluster -name dev run bash "$work/script"
