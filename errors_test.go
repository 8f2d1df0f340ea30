package cove

import (
	"errors"
	"fmt"
	"io"
	"testing"
)

func TestErrors(t *testing.T) {
	plain := Errorf(NotFound, "no %s", "thing")
	wrapped := fmt.Errorf("outer: %w", plain.WithHint("look again"))
	cause := Errorf(StorageFull, "cannot write: %w", io.ErrShortWrite)
	for _, tt := range []struct {
		name string
		err  error
		code Code
		text string
		hint string
	}{
		{"none", nil, "", "", ""},
		{"foreign", io.EOF, Internal, "EOF", ""},
		{"plain", plain, NotFound, "no thing", ""},
		{"wrapped, with a hint", wrapped, NotFound, "outer: no thing (look again)", "look again"},
		{"with a cause", cause, StorageFull, "cannot write: short write", ""},
		{"cause kept by hand", &Error{Code: Corrupt, Message: "bad", Err: io.EOF}, Corrupt, "bad: EOF", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := ErrorCode(tt.err); got != tt.code {
				t.Errorf("code %q, want %q", got, tt.code)
			}
			if got := ErrorHint(tt.err); got != tt.hint {
				t.Errorf("hint %q, want %q", got, tt.hint)
			}
			if tt.err != nil && tt.err.Error() != tt.text {
				t.Errorf("text %q, want %q", tt.err, tt.text)
			}
		})
	}
	if !errors.Is(cause, io.ErrShortWrite) {
		t.Error("the cause is lost")
	}
}

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		id := NewSandboxID()
		if _, err := ParseSandboxID(string(id)); err != nil || seen[string(id)] {
			t.Fatalf("%s: %v", id, err)
		}
		seen[string(id)] = true
	}
	for _, bad := range []string{"", "sb_", "ex_00000000000000000000000000", "sb_0000000000000000000000000",
		"sb_0000000000000000000000000u", "sb_000000000000000000000000/0", "sb_00000000000000000000000000\n"} {
		if _, err := ParseSandboxID(bad); ErrorCode(err) != InvalidArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
