package api

import (
	"encoding/json"
	"time"
)

// Seconds is a duration that callers write. JSON and YAML may have it as a number of seconds (2.5), or as a text with
// units (time.ParseDuration: "10s", "1m30s"); it is written as a number.
type Seconds float64

// UnmarshalJSON implements json.Unmarshaler.
func (s *Seconds) UnmarshalJSON(data []byte) error {
	return s.decode(func(v any) error { return json.Unmarshal(data, v) })
}

// UnmarshalYAML implements the Unmarshaler of YAML libraries.
func (s *Seconds) UnmarshalYAML(unmarshal func(any) error) error { return s.decode(unmarshal) }

// decode reads a text that is a duration, and anything else as a number, so that errors are those of a number.
func (s *Seconds) decode(into func(any) error) error {
	var text string
	if into(&text) == nil {
		if d, err := time.ParseDuration(text); err == nil {
			*s = Seconds(d.Seconds())
			return nil
		}
	}
	return into((*float64)(s))
}
