package jsonschema

import (
	"encoding/json"
	"testing"
)

func TestDocument(t *testing.T) {
	for answer, want := range map[string]string{
		`{"a":1}`: `{"a":1}`, " \n[1]\n": "[1]", "```json\n{\"a\":\"```\"}\n```\n": "{\"a\":\"```\"}", "```\n7\n```": "7",
		"Here it is:\n\n```json\n{\n  \"a\": 1\n}\n```\nAnything else?": "{\n  \"a\": 1\n}", "Here it is: {}": "",
		"": "", "```json": "",
		"```\n{}\n```\n```\n[]\n```": "", "```\n{}": "", "```\nno\n```": "",
	} {
		if got, ok := Document(answer); string(got) != want || ok != (want != "") {
			t.Errorf("%q: %s", answer, got)
		}
	}
}

func FuzzDocument(f *testing.F) {
	f.Add("```json\n{\"a\": 1}\n```")
	f.Fuzz(func(t *testing.T, answer string) {
		got, ok := Document(answer)
		if ok != json.Valid(got) || json.Valid([]byte(answer)) && !ok {
			t.Errorf("%q: %q %v", answer, got, ok)
		}
	})
}
