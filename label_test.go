package cove

import (
	"reflect"
	"strings"
	"testing"
)

func TestLabels(t *testing.T) {
	got, err := ParseLabels([]string{"a=1", "b=", "c=x=y"})
	if want := map[string]string{"a": "1", "b": "", "c": "x=y"}; err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	for _, wrong := range []string{"", "a", "=1"} {
		if _, err := ParseLabels([]string{wrong}); ErrorCode(err) != InvalidArgument {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	for _, c := range []struct {
		wanted map[string]string
		has    bool
	}{
		{nil, true}, {map[string]string{"a": "1"}, true}, {map[string]string{"b": ""}, true},
		{map[string]string{"a": "1", "b": "x"}, false}, {map[string]string{"d": ""}, false},
	} {
		if HasLabels(got, c.wanted) != c.has {
			t.Errorf("%v has %v: %t", got, c.wanted, !c.has)
		}
	}
	if err := CheckLabels(got); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"", "a=b", strings.Repeat("k", 64)} {
		if err := CheckLabels(map[string]string{wrong: "v"}); ErrorCode(err) != InvalidArgument {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
