# Reads the output of go test -json, of a run and of what was repeated, and prints
# the notes, the tests that failed, and the counts. The last result of a test
# counts. Variables: notes, the file of the tests that have had their one note;
# today, the date and the commit of a new one; skips, a file for the skipped tests.
function field(name) { return match($0, "\"" name "\":\"[^\"]*\"") ? substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 5) : "" }

function failure(what) {
	failed++
	print "FAIL " what | "sort"
}

# note: the tests on all kernels are one test.
function note(test, why) {
	gsub(/\/[0-9]+\.[0-9]+/, "", test)
	if (test in noted) {
		failure(test " passed only when repeated, for the second time (the first: " noted[test] "): find the cause")
		return
	}
	noted[test] = "in this run"
	print "NOTE " test " " why
	print "add to " notes ": " today " " test
}

BEGIN {
	while ((getline line <notes) > 0) {
		sub(/#.*/, "", line)
		words = split(line, word, " ")
		if (words == 4) noted[word[3] " " word[4]] = word[1] " " word[2]
		else if (words) failure(notes ": " line ": want DATE COMMIT PACKAGE TEST")
	}
}

{
	action = field("Action")
	test = field("Test")
	whole = field("Package")
	pkg = whole
	sub(/^tenon\.sh\/tenon\//, "", pkg)
}
test == "" && action == "fail" { ended[pkg] = action }
test != "" && action ~ /^(run|pass|fail|skip)$/ {
	last[pkg " " test] = action
	if (action == "fail") broken[pkg " " test] = explained[pkg] = 1
	if (action == "skip") {
		sub(/\/.*/, "", test)
		print whole " " test | "sort -u >" skips
	}
}
# The tests of a guest are repeated in the guest.
action == "output" && match($0, /NOTE: [^:\\]*/) { said[++n] = pkg " " substr($0, RSTART + 6, RLENGTH - 6) }

END {
	for (i = 1; i <= n; i++) note(said[i], "passed only when repeated in its guest")
	for (at in last) {
		split(at, word, " ")
		if (last[at] == "run") explained[word[1]] = 1
		if (last[at] == "pass") {
			passed++
			if (at in broken && word[2] !~ /\//) note(at, "passed only when repeated")
		} else if (last[at] == "skip" && !(at in broken)) skipped++
		else failure(at (last[at] == "run" ? " (did not end)" : ""))
	}
	for (pkg in ended) if (!(pkg in explained)) failure("package " pkg)
	close("sort")
	printf "%d passed, %d skipped, %d failed\n", passed, skipped, failed
	exit failed > 0 || passed == 0
}
