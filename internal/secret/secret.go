// Package secret owns the value that does not print, so that a credential cannot reach a log, an error, an answer or a
// file by accident.
//
// Every way in which Go prints or encodes a [Value] gives "[secret]". [Value.Reveal] is the one way out, and easy to
// search for.
package secret

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// hidden is printed in place of a value.
const hidden = "[secret]"

// Value is a secret string. The zero Value is empty. It is not comparable with ==; use Equal.
//
// A closure holds the string instead of a field: fmt prints unexported fields of a struct without calling their
// methods, and dumpers follow pointers, but neither looks into a function.
type Value struct{ reveal func() string }

// New hides s.
func New(s string) Value {
	if s == "" {
		return Value{}
	}
	return Value{reveal: func() string { return s }}
}

// Reveal returns the string. The caller is responsible for its further use.
func (v Value) Reveal() string {
	if v.reveal == nil {
		return ""
	}
	return v.reveal()
}

// IsZero reports whether the value is empty.
func (v Value) IsZero() bool { return v.reveal == nil }

// Equal compares in a time that depends only on the lengths.
func (v Value) Equal(other Value) bool {
	return subtle.ConstantTimeCompare([]byte(v.Reveal()), []byte(other.Reveal())) == 1
}

// Format implements fmt.Formatter, for every verb.
func (Value) Format(f fmt.State, _ rune) { io.WriteString(f, hidden) }

// String implements fmt.Stringer.
func (Value) String() string { return hidden }

// GoString implements fmt.GoStringer.
func (Value) GoString() string { return hidden }

// MarshalText implements encoding.TextMarshaler, for YAML, XML and map keys.
func (Value) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// MarshalJSON implements json.Marshaler.
func (Value) MarshalJSON() ([]byte, error) { return []byte(`"` + hidden + `"`), nil }

// LogValue implements slog.LogValuer.
func (Value) LogValue() slog.Value { return slog.StringValue(hidden) }
