package jsonschema

import (
	"encoding/json"
	"strings"
)

// Document is the JSON document that an answer in words consists of, or that is in its only block of code: models like
// to put a fence around what they are asked for.
func Document(answer string) (json.RawMessage, bool) {
	text := strings.TrimSpace(answer)
	if !json.Valid([]byte(text)) {
		text = block(text)
	}
	if !json.Valid([]byte(text)) {
		return nil, false
	}
	return json.RawMessage(text), true
}

// block returns the text between the only two fences of a text. A fence begins a
// line, so a JSON document contains none.
func block(text string) string {
	var inside strings.Builder
	fences := 0
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fences++
		case fences == 1:
			inside.WriteString(line)
		}
	}
	if fences != 2 {
		return ""
	}
	return strings.TrimSpace(inside.String())
}
