package modeltest

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"
)

// asked is what a request says, whichever API it is of.
type asked struct {
	model   string
	stream  bool
	frames  bool // the stream is one of AWS's
	list    bool // the stream is a list of documents
	usage   bool // chat completions: a stream says what was used
	session string
	items   []item
	tools   []tool
	form    *property // what the answer is to be, as JSON; nil: words
	path    string    // of the request
	size    int       // of its body
}

// item is one thing in a conversation.
type item struct {
	by   author
	text string
}

type author int

const (
	user   author = iota // who asks
	model                // what the model said, thought or called before
	result               // what a tool answered
	system               // everything else
)

// place is how far a conversation is.
type place struct {
	prompt   string // the last one
	answered int    // answers of the model since
	before   int    // answers before it
}

// opening begins a block that agents put beside a prompt: reminders, the environment.
var opening = regexp.MustCompile(`<([a-zA-Z][\w-]*)[^<>]*>`)

// prompting is what a person says in a user's text, without such blocks.
func prompting(text string) string {
	var b strings.Builder
	for {
		at := opening.FindStringSubmatchIndex(text)
		if at == nil {
			b.WriteString(text)
			return strings.TrimSpace(b.String())
		}
		b.WriteString(text[:at[0]])
		if _, after, ok := strings.Cut(text[at[1]:], "</"+text[at[2]:at[3]]+">"); ok {
			text = after
			continue
		}
		b.WriteString(text[at[0]:at[1]])
		text = text[at[1]:]
	}
}

// locate reads how far a conversation is from what it says, so that many can go on at once and none has to be
// remembered. What the model says between two others is one answer, however many items it is.
func locate(items []item) place {
	var p place
	runs := 0
	last := user
	for _, i := range items {
		switch {
		case i.by == model:
			if last != model {
				runs++
			}
		case i.by == user:
			if text := prompting(i.text); text != "" {
				p.prompt, p.before = text, runs
			}
		}
		if i.by != system {
			last = i.by
		}
	}
	p.answered = runs - p.before
	return p
}

// fingerprint tells tries of the same request from requests that follow.
func (a *asked) fingerprint() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n%s\n%s\n", a.path, a.session, a.model)
	for _, i := range a.items {
		fmt.Fprintf(h, "%d %d %s\n", i.by, len(i.text), i.text)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// name makes an id: the same for the same place of the same conversation, so that
// two runs of one script can be compared, and never twice in one.
func (p place) name(prefix string, n int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%d\n%d", p.prompt, p.before, p.answered, n))
	return prefix + hex.EncodeToString(sum[:12])
}
