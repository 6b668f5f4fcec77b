package node

import "encoding/json"

// MarshalJSON writes the value, or null if it is absent.
func (m Maybe[T]) MarshalJSON() ([]byte, error) {
	if !m.known {
		return []byte("null"), nil
	}
	return json.Marshal(m.value)
}

// UnmarshalJSON reads what MarshalJSON writes.
func (m *Maybe[T]) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*m = Maybe[T]{}
		return nil
	}
	m.known = true
	return json.Unmarshal(b, &m.value)
}
