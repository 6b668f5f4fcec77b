package typed

import (
	"slices"
	"testing"
)

func TestCommandsAreThoseOfShellBlocks(t *testing.T) {
	const text = "Type `tenon top`:\n\n```sh\nsudo bin/tenon top      # live\n                        # and more\n\nx='a#b' && true\n```\n\n" +
		"```yaml\ntenon: not a command\n```\n\n    kubectl get nodes\n    batch-cpu = 60 %\n\n- a list\n    kubectl continues the list\n"
	var got []string
	for _, c := range Commands(text, "kubectl") {
		got = append(got, c.Bare())
	}
	if want := []string{"tenon top", "x='a#b' && true", "kubectl get nodes"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if line := Commands(text)[0].Line; line != 4 {
		t.Errorf("the first command is in line %d, want 4", line)
	}
}
