package seccomp

import (
	_ "embed"
	"strconv"
	"strings"
	"sync"
)

// call is one system call: its name and its number on each architecture.
type call struct {
	name         string
	amd64, arm64 int16 // absent where the architecture has no such call
}

const absent = -1

//go:embed table.txt
var table string

// calls returns the table of Linux 6.19. It is read when the first policy is compiled; a test compares it with x/sys.
var calls = sync.OnceValue(func() []call {
	var all []call
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); f[0] != "#" {
			all = append(all, call{name: f[0], amd64: callNumber(f[1]), arm64: callNumber(f[2])})
		}
	}
	return all
})

func callNumber(text string) int16 {
	if text == "-" {
		return absent
	}
	n, err := strconv.ParseInt(text, 10, 16)
	if err != nil {
		panic("seccomp: table.txt: " + err.Error())
	}
	return int16(n)
}
