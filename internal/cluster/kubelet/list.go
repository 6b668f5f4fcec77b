package kubelet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// items returns the text of each pod of a PodList without decoding the pods. It
// checks only the text outside the pods. A list of a hundred pods has a
// megabyte, and most pods are unchanged since the last list. Finding the end of
// a pod takes a tenth of the time of decoding it.
func items(list []byte) ([][]byte, error) {
	d := json.NewDecoder(bytes.NewReader(list))
	if err := open(d, '{'); err != nil {
		return nil, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		if key == "items" {
			return itemsAt(list, d)
		}
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return nil, fmt.Errorf("%v: %w", key, err)
		}
	}
	return nil, errors.New("it lists no items")
}

// itemsAt returns the texts of the pods. The position of d is just before the
// value of the field items.
func itemsAt(list []byte, d *json.Decoder) (all [][]byte, err error) {
	first, err := d.Token()
	switch {
	case err != nil:
		return nil, err
	case first != nil && first != json.Delim('['): // null: the list has no pods
		return nil, fmt.Errorf("items: %v: want a list", first)
	}
	var frame []byte // the list, with empty objects in place of the pods
	end := 0
	if first != nil {
		for at := int(d.InputOffset()); ; {
			at += len(list[at:]) - len(bytes.TrimLeft(list[at:], " \t\r\n,"))
			n := objectLength(list[at:])
			if n == 0 {
				break
			}
			all = append(all, list[at:at+n])
			frame = append(append(frame, list[end:at]...), "{}"...)
			at += n
			end = at
		}
	}
	var of struct {
		Items []json.RawMessage `json:"items"`
	}
	if err := json.Unmarshal(append(frame, list[end:]...), &of); err != nil { // an incomplete answer is an error
		return nil, err
	}
	if len(of.Items) != len(all) {
		return nil, fmt.Errorf("items[%d] is no object", len(all))
	}
	return all, nil
}

// objectLength returns the length of the JSON object at the beginning of text,
// or 0 if no complete object is there. It does not check the content of the
// object.
func objectLength(text []byte) int {
	if len(text) == 0 || text[0] != '{' {
		return 0
	}
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringLength(text[i:]) - 1
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		}
	}
	return 0
}

// stringLength returns the length of the string at the beginning of text, with
// its quotes. If the string has no end, it returns the length of text.
func stringLength(text []byte) int {
	for i := 1; ; {
		quote := bytes.IndexByte(text[i:], '"')
		if quote < 0 {
			return len(text)
		}
		escapes := 0
		for text[i+quote-1-escapes] == '\\' {
			escapes++
		}
		if i += quote + 1; escapes%2 == 0 {
			return i
		}
	}
}

func open(d *json.Decoder, want json.Delim) error {
	switch first, err := d.Token(); {
	case err != nil:
		return err
	case first != want:
		return fmt.Errorf("it begins with %v: want %v", first, want)
	}
	return nil
}
