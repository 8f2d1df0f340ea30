package model

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/jsonschema"
)

// MaxContinued bounds the continuations of a truncated answer.
const MaxContinued = 4

// Draft judges a model's last answer, whose parts may come one by one, and which may have to be corrected once.
type Draft struct {
	Schema *jsonschema.Schema // that it must be valid by; nil: none
	Text   string             // so far
	Data   json.RawMessage    // with a schema: the document in Text, once it is valid

	continued int
	corrected bool
}

// Take takes an answer without calls. Unless again is empty, the model is to be told that; err is then the reason for
// it, if there is one. Else the answer is final. Errors: AgentFailed, SchemaMismatch, TooLarge.
func (d *Draft) Take(a Answer) (again string, err error) {
	d.Text += a.Message.Texts(Text)
	switch {
	case a.Stop == Refused:
		return "", cove.Errorf(cove.AgentFailed, "the model refuses to answer")
	case a.Stop == Cut:
		if d.continued++; d.continued > MaxContinued {
			return "", cove.Errorf(cove.AgentFailed, "the answer was cut off %d times", d.continued).
				WithHint("allow longer ones, or ask for less")
		}
		return "Your answer was cut off at its longest. Go on exactly where it ended, and repeat nothing.", nil
	case strings.TrimSpace(d.Text) == "":
		return "", cove.Errorf(cove.AgentFailed, "the model answered with nothing")
	case d.Schema == nil:
		return "", nil
	}
	d.Data, err = conform(d.Schema, d.Text)
	if err == nil || d.corrected || cove.ErrorCode(err) != cove.SchemaMismatch {
		return "", err
	}
	d.corrected, d.Text, d.Data = true, "", nil
	return fmt.Sprintf("Your answer cannot be used: %s. Answer again, with the corrected JSON document alone.", err), err
}

// conform extracts the JSON document from an answer and validates it. Errors: SchemaMismatch.
func conform(schema *jsonschema.Schema, text string) (json.RawMessage, error) {
	document, ok := jsonschema.Document(text)
	if !ok {
		return nil, cove.Errorf(cove.SchemaMismatch, "the answer is not one JSON document")
	}
	if err := schema.Validate(document); err != nil {
		return nil, err
	}
	return document, nil
}

// Instructions returns the parts of the system's text that every task may add.
func Instructions(instructions string, schema []byte) (parts []string) {
	if strings.TrimSpace(instructions) != "" {
		parts = append(parts, instructions)
	}
	if schema != nil {
		parts = append(parts, "Your last answer is one JSON document that is valid by the following JSON Schema, and "+
			"nothing besides: no words around it, no block of code.\n\n"+string(schema))
	}
	return parts
}
