// Package lie holds what a hostile guest says in place of the truth, and how its host has to take that.
package lie

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/cove-sandbox/cove/internal/guest"
)

// Reaction is what becomes of a call that a guest answers with a lie, and of the connection.
type Reaction string

const (
	Ends     Reaction = "the call fails, and the connection ends"
	Fails    Reaction = "the call fails, and the connection goes on"
	Waits    Reaction = "the call ends with its caller's time, and the connection goes on"
	Believed Reaction = "the call succeeds, and the connection goes on" // it is about the sandbox alone
)

// Mouth is the guest's end of a connection.
type Mouth interface {
	Write(p []byte) (int, error)
	WriteFDs(p []byte, fds []int) error // fails where the connection carries none
}

// Lie is one lie.
type Lie struct {
	Name string
	Say  func(m Mouth, id uint32) // id is that of the request or the process
	Mute bool                     // nothing else is said from then on
	Want Reaction
	Void Reaction // Want of an operation without an answer; empty is the same
}

// Hello stands for the first message of a guest, among operations.
const Hello guest.Op = "hello"

// Void are the operations whose answer is empty, or bytes alone.
var Void = map[guest.Op]bool{guest.OpBegin: true, guest.OpSetup: true, guest.OpBind: true, guest.OpSignal: true,
	guest.OpResize: true, guest.OpWrite: true, guest.OpMkdir: true, guest.OpRemove: true, guest.OpNote: true,
	guest.OpNoted: true, guest.OpPark: true, guest.OpRelease: true}

// About returns the lies about an operation: those that any message can be replaced with, and its own. Those that end
// the connection are the last.
func About(op guest.Op) []Lie {
	own := answers[op]
	var last []Lie
	for _, l := range messages {
		if op == Hello && l.Name == "a hello" { // which is the truth
			continue
		}
		if l.Want == Ends {
			last = append(last, l)
		} else {
			own = append(own, l)
		}
	}
	return append(own, last...)
}

// Find returns a lie about an operation by its name; with "stream" as the operation one about a program that runs.
func Find(op, name string) (Lie, bool) {
	all := Streams
	if op != "stream" {
		all = About(guest.Op(op))
	}
	for _, l := range all {
		if l.Name == name {
			return l, true
		}
	}
	return Lie{}, false
}

// say returns a Say of one frame.
func say(kind guest.FrameType, other uint32, payload []byte) func(Mouth, uint32) {
	return func(m Mouth, id uint32) {
		b, err := guest.AppendFrame(nil, guest.Frame{Type: kind, ID: id + other, Payload: payload})
		if err != nil {
			panic(err)
		}
		m.Write(b)
	}
}

func body(text string, raw ...byte) []byte { return guest.Body{JSON: []byte(text), Raw: raw}.Payload() }

// stranger is how far an id lies from that of the request: nothing has it.
const stranger = 100_000

// chunk is the beginning of a stream.
var chunk = guest.Chunk{Data: []byte("x")}.Payload()

// messages are what a guest can say in place of any message.
var messages = []Lie{
	{Name: "silence", Say: func(Mouth, uint32) {}, Want: Waits},
	{Name: "a long failure", Want: Fails, Say: say(guest.FrameFailure, 0,
		[]byte(`{"kind":"\u001b[31m","message":"`+strings.Repeat("long ", 180_000)+`"}`))},
	{Name: "no JSON", Want: Fails, Void: Believed, Say: say(guest.FrameReply, 0, body("\x00\xff"))},
	{Name: "a deep list", Want: Fails, Void: Believed, Say: say(guest.FrameReply, 0, body(strings.Repeat("[", 500_000)))},
	{Name: "descriptors", Want: Believed, Say: func(m Mouth, id uint32) {
		b, _ := guest.AppendFrame(nil, guest.Frame{Type: guest.FrameReply, ID: id, Payload: body("null")})
		if m.WriteFDs(b, []int{0, 1, 2}) != nil {
			m.Write(b)
		}
	}},
	{Name: "no body", Want: Ends, Say: say(guest.FrameReply, 0, nil)},
	{Name: "more JSON than that", Want: Ends, Say: say(guest.FrameReply, 0, []byte("\xff\xff\xff\xff{}"))},
	{Name: "no failure", Want: Ends, Say: say(guest.FrameFailure, 0, []byte("["))},
	{Name: "an answer to another", Want: Ends, Say: say(guest.FrameReply, stranger, body(`{"pid":1}`))},
	{Name: "a failure of another", Want: Ends, Say: say(guest.FrameFailure, stranger, []byte(`{}`))},
	{Name: "a hello", Want: Ends, Say: say(guest.FrameHello, 0, []byte(`{"version":1}`))},
	{Name: "a request", Want: Ends, Say: say(guest.FrameRequest, 0, body(`{"op":"health"}`))},
	{Name: "input", Want: Ends, Say: say(guest.FrameStdin, 0, chunk)},
	{Name: "output of another", Want: Ends, Say: say(guest.FrameStdout, stranger, chunk)},
	{Name: "errors of another", Want: Ends, Say: say(guest.FrameStderr, stranger, chunk)},
	{Name: "an acknowledgement of another", Want: Ends, Say: say(guest.FrameAck, stranger, guest.Ack{}.Payload())},
	{Name: "the exit of another", Want: Ends, Say: say(guest.FrameExit, stranger, []byte(`{"code":0}`))},
	{Name: "a frame of no kind", Want: Ends, Say: header(0, guest.FrameExit+1)},
	{Name: "four gigabytes", Want: Ends, Say: header(math.MaxUint32, guest.FrameReply)},
}

// header returns a Say of the beginning of a frame.
func header(length uint32, kind guest.FrameType) func(Mouth, uint32) {
	return func(m Mouth, id uint32) {
		b := append(binary.BigEndian.AppendUint32(nil, length), byte(kind))
		m.Write(binary.BigEndian.AppendUint32(b, id))
	}
}

// answers are lies of an operation's own.
var answers = map[guest.Op][]Lie{
	Hello: {
		{Name: "another version", Want: Ends, Say: say(guest.FrameHello, 0, []byte(`{"version":99}`))},
		{Name: "no hello", Want: Ends, Say: say(guest.FrameHello, 0, []byte(`{`))},
	},
	guest.OpHealth: {{Name: "wild numbers", Want: Believed, Say: say(guest.FrameReply, 0,
		body(`{"bound":false,"processes":-9223372036854775808}`))}},
	guest.OpStart: {{Name: "a wild number", Want: Believed, Say: say(guest.FrameReply, 0, body(`{"pid":-1}`))}},
	guest.OpAttach: {
		{Name: "input beyond its end", Want: Fails, Say: say(guest.FrameReply, 0, body(`{"stdin":18446744073709551615}`))},
		{Name: "more taken than sent", Want: Fails, Say: say(guest.FrameReply, 0, body(`{"stdin":1,"stdin_taken":2}`))},
	},
	guest.OpRead: {{Name: "a long part", Want: Fails, Say: say(guest.FrameReply, 0,
		body(`{"size":1}`, make([]byte, guest.MaxChunk+1)...))}},
	guest.OpNoted: {{Name: "a long note", Want: Fails, Say: say(guest.FrameReply, 0,
		body(`{}`, make([]byte, guest.MaxNote+1)...))}},
	guest.OpProcesses: {
		{Name: "too many", Want: Fails, Say: say(guest.FrameReply, 0,
			body("["+strings.Repeat(`{"id":1},`, guest.MaxProcesses)+`{"id":1}]`))},
		{Name: "a long label", Want: Fails, Say: say(guest.FrameReply, 0,
			body(fmt.Sprintf(`[{"id":1,"label":"%s"}]`, strings.Repeat("QUJD", guest.MaxLabel))))},
	},
	guest.OpListeners: {
		{Name: "more than came", Want: Fails, Say: say(guest.FrameReply, 0, body(`{"count":1000000000}`))},
		{Name: "fewer than none", Want: Fails, Say: say(guest.FrameReply, 0, body(`{"count":-1}`))},
	},
	guest.OpStats: {{Name: "wild numbers", Want: Believed, Say: say(guest.FrameReply, 0,
		body(`{"bytes_written":-1,"disk_used":-9223372036854775808,"disk_size":9223372036854775807}`))}},
}

// Streams are lies about a program that runs.
var Streams = []Lie{
	{Name: "silence", Say: func(Mouth, uint32) {}, Mute: true, Want: Waits},
	{Name: "death", Say: func(Mouth, uint32) { os.Exit(0) }, Mute: true, Want: Ends},
	{Name: "half a frame", Say: func(m Mouth, _ uint32) { m.Write([]byte{0, 0, 3}) }, Mute: true, Want: Waits},
	{Name: "four gigabytes", Say: header(math.MaxUint32, guest.FrameReply), Mute: true, Want: Ends},
	{Name: "garbage", Say: func(m Mouth, _ uint32) { m.Write(bytes.Repeat([]byte("\xffgarbage"), 1000)) }, Mute: true,
		Want: Ends},
	{Name: "a flood", Want: Ends, Say: func(m Mouth, id uint32) {
		c := guest.Chunk{Data: make([]byte, guest.MaxChunk)}
		for ok := true; ok; c.Offset += guest.MaxChunk {
			b, _ := guest.AppendFrame(nil, guest.Frame{Type: guest.FrameStdout, ID: id, Payload: c.Payload()})
			_, err := m.Write(b)
			ok = err == nil
		}
	}},
	{Name: "a gap", Want: Ends, Say: say(guest.FrameStdout, 0, guest.Chunk{Offset: 1 << 40, Data: []byte("x")}.Payload())},
	{Name: "a gap of errors", Want: Ends,
		Say: say(guest.FrameStderr, 0, guest.Chunk{Offset: 1 << 40, Data: []byte("x")}.Payload())},
	{Name: "a short chunk", Want: Ends, Say: say(guest.FrameStdout, 0, []byte("short"))},
	{Name: "an acknowledgement", Want: Ends,
		Say: say(guest.FrameAck, 0, guest.Ack{Stream: guest.Stdin, Offset: 1 << 60}.Payload())},
	{Name: "an acknowledgement of output", Want: Ends,
		Say: say(guest.FrameAck, 0, guest.Ack{Stream: guest.Stdout}.Payload())},
	{Name: "no exit", Want: Ends, Say: say(guest.FrameExit, 0, []byte("{"))},
	{Name: "two exits", Want: Believed, Say: func(m Mouth, id uint32) {
		for range 2 {
			say(guest.FrameExit, 0, []byte(`{"code":7,"stats":{"disk_used":-1}}`))(m, id)
		}
	}},
	{Name: "an answer without a question", Want: Ends, Say: say(guest.FrameReply, stranger, body("{}"))},
	{Name: "a hello", Want: Ends, Say: say(guest.FrameHello, 0, []byte(`{"version":1}`))},
	{Name: "descriptors without end", Want: Ends, Say: func(m Mouth, id uint32) {
		b, _ := guest.AppendFrame(nil, guest.Frame{Type: guest.FrameAck, ID: id, Payload: guest.Ack{}.Payload()})
		for m.WriteFDs(b, []int{0, 1, 2, 0, 1, 2, 0, 1, 2}) == nil {
		}
		m.Write([]byte{0}) // where the connection carries none
		say(guest.FrameHello, 0, nil)(m, id)
	}},
}
