package syntax

import "testing"

// TestACharacterThatIsNoJSONIsNamed checks the errors for characters beyond
// ASCII. Package encoding/json names their first byte only.
func TestACharacterThatIsNoJSONIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"\ufeff{\"a\": 1}":              "",
		"\ufeff\ufeff{}":                "not JSON: invalid character U+FEFF looking for beginning of value",
		"{\ufeff\"a\": 1}":              "not JSON: invalid character U+FEFF looking for beginning of object key string",
		"{\u00a0\"a\": 1}":              "not JSON: invalid character U+00A0 looking for beginning of object key string",
		"{“a”: 1}":                      "not JSON: invalid character '“' (U+201C) looking for beginning of object key string",
		"{\"a\": 1}…":                   "not JSON: invalid character '…' (U+2026) after top-level value",
		"{\"a\": \xff}":                 "not JSON: the byte 0xff is not UTF-8 text, looking for beginning of value",
		"{\"a\": x}":                    "not JSON: invalid character 'x' looking for beginning of value",
		"":                              "not JSON: the text is empty",
		"\ufeff":                        "not JSON: the text is empty",
		" \n":                           "not JSON: the text is empty",
		"{\n\"a\": 1,\n\u200b\"b\": 2}": "not JSON: line 3: invalid character U+200B looking for beginning of object key string",
		"{\"a\": \"\ufeff“…\"}":         "",
	} {
		got := ""
		if _, err := JSON(text); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q:\n got %q\nwant %q", text, got, want)
		}
	}
}
