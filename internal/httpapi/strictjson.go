package httpapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// maxDepth is how deep arrays and objects may nest.
const maxDepth = 32

// strictJSON is JSON that means one thing only: encoding/json takes the last of two equal keys, replaces invalid UTF-8
// and matches names in any case, so that two readers of one body could see different requests.
var strictJSON = huma.Format{
	Marshal: func(w io.Writer, v any) error {
		if whole, is := v.(withOutput); is {
			return whole.writeJSON(w)
		}
		return encodeJSON(w, v)
	},
	Unmarshal: func(data []byte, v any) error {
		// huma decodes twice: for validation into an interface, then into the
		// type. The text is the same, so one look is enough.
		if _, first := v.(*any); first {
			if err := checkJSON(data); err != nil {
				return err
			}
		}
		return plainly(json.Unmarshal(data, v))
	},
}

// plainly is err without Go's words.
func plainly(err error) error {
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		where := ""
		if mismatch.Field != "" {
			where = mismatch.Field + ": "
		}
		return fmt.Errorf("%sthe %s is out of range or of the wrong kind", where, truncate(mismatch.Value, 60))
	}
	return err
}

// checkJSON refuses what is not one strict JSON value.
func checkJSON(data []byte) error {
	switch {
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return errors.New("the JSON begins with a byte order mark; send it without")
	case !utf8.Valid(data):
		return errors.New("the JSON is not valid UTF-8; send other bytes as files with encoding base64")
	}
	if err := checkKeys(data); err != nil {
		return err
	}
	if !json.Valid(data) {
		var v any
		err := json.Unmarshal(data, &v)
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	return nil
}

// checkKeys walks through data, which need not be valid, and refuses objects
// that have a key twice, in any case, and values that nest too deep.
func checkKeys(data []byte) error {
	var open []map[string]bool // nil for an array
	key := false               // a string here is a key
	for i := 0; i < len(data); i++ {
		switch data[i] {
		case '{', '[':
			if len(open) == maxDepth {
				return fmt.Errorf("the JSON nests deeper than %d levels", maxDepth)
			}
			var keys map[string]bool
			if key = data[i] == '{'; key {
				keys = map[string]bool{}
			}
			open = append(open, keys)
		case '}', ']':
			if len(open) > 0 {
				open = open[:len(open)-1]
			}
			key = false
		case ',':
			key = len(open) > 0 && open[len(open)-1] != nil
		case '"':
			end := stringEnd(data, i)
			if key {
				if err := addKey(open[len(open)-1], data[i:end]); err != nil {
					return err
				}
			}
			key = false
			i = end - 1
		}
	}
	return nil
}

// stringEnd is the offset after the string that begins at i.
func stringEnd(data []byte, i int) int {
	for i++; i < len(data); i++ {
		switch data[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(data)
}

func addKey(keys map[string]bool, quoted []byte) error {
	var k string
	if err := json.Unmarshal(quoted, &k); err != nil {
		return fmt.Errorf("the body is not JSON: %w", err)
	}
	folded := strings.ToLower(k)
	if keys[folded] {
		return fmt.Errorf("the key %.64q is there twice", k)
	}
	keys[folded] = true
	return nil
}
