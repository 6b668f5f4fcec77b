# typed.sh: sourced by the scripts that type the commands of a page.

# typed PAGE FROM [TO]: the commands of the page's shell blocks between two
# headings (to the end of the page without TO), without their comments.
typed() {
	awk -v from="$2" -v to="${3-}" '
		index($0, from) == 1 { on = 1 }
		to != "" && index($0, to) == 1 { on = 0 }
		/^```/ { sh = !open && $0 == "```sh"; open = !open; next }
		on && sh { sub(/ +#.*/, ""); if ($0 != "") print }' "$1"
}

# took BEGUN TEXT: prints how long ago BEGUN ($EPOCHREALTIME) was.
took() { printf '== %6.1f s  %s\n' "$(awk "BEGIN { print $EPOCHREALTIME - $1 }")" "$2"; }

# shown COMMAND: runs a command line, and prints it and how long it took.
shown() {
	local begun=$EPOCHREALTIME
	echo "\$ $1"
	eval "$1"
	took "$begun" "$1"
}
