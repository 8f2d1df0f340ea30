package cove

import (
	"fmt"
	"strings"
	"testing"
)

func TestCheckServices(t *testing.T) {
	one := func(name string) []Service { return []Service{{Name: name, Image: "redis:7"}} }
	var many []Service
	for i := range MaxServices + 1 {
		many = append(many, one(fmt.Sprint("s", i))...)
	}
	for what, c := range map[string]struct {
		all []Service
		bad string
	}{
		"none": {}, "db": {all: one("db")}, "a-b2": {all: one("a-b2")}, "the most": {all: many[1:]},
		"more": {many, "at most 16"}, "no name": {one(""), "not a name"}, "capitals": {one("DB"), "not a name"},
		"a dot": {one("db.example"), "not a name"}, "a digit first": {one("127"), "not a name"},
		"localhost": {one("localhost"), "not a name"}, "of Cove's own": {one("cove"), "not a name"},
		"of the gateway": {one("gateway"), "not a name"}, "in other letters": {one("xn--a"), "not a name"},
		"a hyphen last": {one("a-"), "not a name"},
		"long":          {one(strings.Repeat("a", 33)), "not a name"},
		"twice":         {append(one("db"), one("db")...), "two services"},
		"no image":      {[]Service{{Name: "db"}}, "no image"},
		"the host's":    {[]Service{{Name: "db", Image: "host"}}, "no image"},
		"port 0":        {[]Service{{Name: "db", Image: "x", Ports: []uint16{0}}}, "not a port"},
	} {
		err := CheckServices(c.all)
		if (err != nil) != (c.bad != "") || err != nil && !strings.Contains(err.Error(), c.bad) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
