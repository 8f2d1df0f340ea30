package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"
)

// conformance is the last line that h2spec prints here.
type conformance struct {
	Passed, Skipped int
	Failed          []string // group/sequence and description
}

// h2specProgram tests the HTTP/2 server at a host, port 443: all, or sections like "http2/6".
func h2specProgram(_ context.Context, args []string) error {
	if len(args) < 1 {
		return errors.New("usage: clients h2spec HOST [SECTION…]")
	}
	c := &config.Config{Host: args[0], Port: 443, Path: "/", Timeout: 2 * time.Second, MaxHeaderLen: 4000, TLS: true,
		Strict: true, Sections: args[1:]}
	var found conformance
	for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
		group.Test(c)
		found.add(group)
	}
	fmt.Println()
	return json.NewEncoder(os.Stdout).Encode(found)
}

func (f *conformance) add(group *spec.TestGroup) {
	for _, tests := range [][]*spec.TestCase{group.Tests, group.StrictTests} {
		for _, t := range tests {
			switch {
			case t.Result == nil:
			case t.Result.Failed:
				f.Failed = append(f.Failed, fmt.Sprintf("%s/%d %s", group.ID(), t.Result.Sequence, t.Desc))
			case t.Result.Skipped:
				f.Skipped++
			default:
				f.Passed++
			}
		}
	}
	for _, g := range group.Groups {
		f.add(g)
	}
}
