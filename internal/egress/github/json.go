package github

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode/utf8"
)

const maxNesting = 64 // bounds the nesting of JSON

// readObject parses an unambiguous JSON object: without repeated keys, and without trailing data.
func readObject(data []byte) (map[string]any, error) {
	if !utf8.Valid(data) {
		return nil, errors.New("the body is not UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := readValue(d, 0)
	if err != nil {
		return nil, err
	}
	object, ok := v.(map[string]any)
	if !ok {
		return nil, errors.New("the body is not one JSON object")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON")
	}
	return object, nil
}

var errNotJSON = errors.New("the body is not JSON")

func readValue(d *json.Decoder, depth int) (any, error) {
	if depth > maxNesting {
		return nil, errors.New("the JSON nests too deep")
	}
	token, err := d.Token()
	if err != nil {
		return nil, errNotJSON
	}
	switch token {
	case json.Delim('{'):
		object := map[string]any{}
		for d.More() {
			key, err := d.Token()
			if err != nil {
				return nil, errNotJSON
			}
			name := key.(string) // the decoder accepts only strings here
			if _, twice := object[name]; twice {
				return nil, errors.New("a key of the JSON is there twice")
			}
			if object[name], err = readValue(d, depth+1); err != nil {
				return nil, err
			}
		}
		return object, end(d)
	case json.Delim('['):
		list := []any{}
		for d.More() {
			v, err := readValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, end(d)
	}
	return token, nil
}

func end(d *json.Decoder) error {
	if _, err := d.Token(); err != nil {
		return errNotJSON
	}
	return nil
}

func writeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
