// Package jsonschema judges JSON documents by a JSON Schema, and says where a document differs. Neither schema nor
// document is trusted: nothing is loaded from anywhere, and the work that both can cause together is bounded.
package jsonschema

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/pattern"
)

// Bounds. A schema or document beyond them is an error, never a longer wait.
const (
	MaxSchema   = 256 << 10 // bytes
	MaxDocument = 4 << 20   // bytes

	maxValues    = 10_000    // JSON values of a schema: compiling takes their square
	maxPattern   = 4 << 10   // bytes of one regular expression
	maxPrograms  = 50_000    // instructions of all regular expressions together
	maxSteps     = 3_000_000 // of a validation, as meter counts them: seconds
	maxDigits    = 400       // of a number: they are compared exactly
	maxExponent  = 400       // of a number, as written
	maxComplains = 5         // differences that an error lists
)

// location names the schema in references and is never read.
const location = "schema:///"

// Schema is one that was found valid.
type Schema struct {
	compiled *jsonschema.Schema

	mu    sync.Mutex // guards what follows: one validation at a time
	steps int        // that it has taken
}

// Compile reads a schema of any draft from 4 on, the last where it does not say. References lead into the schema
// itself, or to the drafts' own. Errors: InvalidArgument.
func Compile(schema []byte) (*Schema, error) {
	if len(schema) > MaxSchema {
		return nil, cove.Errorf(cove.InvalidArgument, "the schema has %d bytes, %d are allowed", len(schema), MaxSchema)
	}
	doc, err := decode(schema)
	if err != nil {
		return nil, cove.Errorf(cove.InvalidArgument, "the schema is not valid JSON: %w", err)
	}
	if n := count(doc); n > maxValues {
		return nil, cove.Errorf(cove.InvalidArgument, "the schema consists of %d values, %d are allowed", n, maxValues)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(nothing{})
	c.UseRegexpEngine(patterns())
	if err := c.AddResource(location, doc); err != nil {
		return nil, invalid(err)
	}
	compiled, err := c.Compile(location)
	if err != nil {
		return nil, invalid(err)
	}
	s := &Schema{compiled: compiled}
	if err := s.meter(); err != nil {
		return nil, err
	}
	return s, nil
}

// Validate judges one document by one schema. Errors: as of Compile and Schema.Validate.
func Validate(schema, document []byte) error {
	s, err := Compile(schema)
	if err != nil {
		return err
	}
	return s.Validate(document)
}

// Validate is nil for a document that is valid. Errors: SchemaMismatch, which says where and what; TooLarge;
// InvalidArgument when schema and document together take too much work.
func (s *Schema) Validate(document []byte) (err error) {
	if len(document) > MaxDocument {
		return cove.Errorf(cove.TooLarge, "the document has %d bytes, %d are allowed", len(document), MaxDocument)
	}
	doc, err := decode(document)
	if err != nil {
		return cove.Errorf(cove.SchemaMismatch, "the document is not valid JSON: %w", err)
	}
	defer func() {
		if e := recover(); e == tooMuch {
			err = cove.Errorf(cove.InvalidArgument, "to judge this document by its schema takes more than %d steps", maxSteps).
				WithHint("make the schema simpler: alternatives inside alternatives multiply")
		} else if e != nil {
			panic(e)
		}
	}()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.steps = 0
	err = s.compiled.Validate(doc)
	if differs, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		return cove.Errorf(cove.SchemaMismatch, "the document does not match its schema: %s", complaints(doc, differs))
	}
	return err
}

func invalid(err error) error {
	var by *jsonschema.SchemaValidationError
	var differs *jsonschema.ValidationError
	if errors.As(err, &by) && errors.As(by.Err, &differs) {
		return cove.Errorf(cove.InvalidArgument, "the schema is not valid: %s", complaints(nil, differs))
	}
	return cove.Errorf(cove.InvalidArgument, "the schema is not valid: %s", strings.ReplaceAll(err.Error(), location, ""))
}

type nothing struct{}

func (nothing) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s, and nothing outside of the schema is loaded", url)
}

// patterns compiles regular expressions, which take linear time, until they are too large together.
func patterns() jsonschema.RegexpEngine {
	left := maxPrograms
	return func(pattern string) (jsonschema.Regexp, error) {
		if len(pattern) > maxPattern {
			return nil, fmt.Errorf("a pattern has %d bytes, %d are allowed", len(pattern), maxPattern)
		}
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			return nil, err
		}
		program, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			return nil, err
		}
		if left -= len(program.Inst); left < 0 {
			return nil, fmt.Errorf("the patterns of the schema are too large")
		}
		return regexp.Compile(pattern)
	}
}

// decode reads one JSON value with its numbers as they are written.
func decode(data []byte) (any, error) {
	d := json.NewDecoder(strings.NewReader(string(data)))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	end := d.InputOffset()
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is more after byte %d, where the first value ends", end)
	}
	return v, numbers(v)
}

// numbers refuses those that are too long to be compared exactly.
func numbers(v any) error {
	for part := range within(v) {
		if err := numbers(part); err != nil {
			return err
		}
	}
	number, _ := v.(json.Number)
	s := string(number)
	if len(s) > maxDigits {
		return fmt.Errorf("a number has %d digits, %d are allowed", len(s), maxDigits)
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if e, err := strconv.Atoi(s[i+1:]); err != nil || e > maxExponent || e < -maxExponent {
			return fmt.Errorf("the number %s is out of range", s)
		}
	}
	return nil
}

// within iterates over the values directly in a value.
func within(v any) iter.Seq[any] {
	switch v := v.(type) {
	case map[string]any:
		return maps.Values(v)
	case []any:
		return slices.Values(v)
	}
	return func(func(any) bool) {}
}

func count(v any) int {
	n := 1
	for part := range within(v) {
		n += count(part)
	}
	return n
}

// complaints are the differences at the ends of an error's tree, each with its place in the document, in order.
func complaints(doc any, err *jsonschema.ValidationError) string {
	printer := message.NewPrinter(language.English)
	var all []string
	var collect func(*jsonschema.ValidationError)
	collect = func(e *jsonschema.ValidationError) {
		if len(e.Causes) > 0 {
			for _, cause := range e.Causes {
				collect(cause)
			}
			return
		}
		all = append(all, place(doc, e.InstanceLocation)+": "+say(e.ErrorKind, printer))
	}
	collect(err)
	slices.Sort(all)
	all = slices.Compact(all)
	if more := len(all) - maxComplains; more > 0 {
		all = append(all[:maxComplains], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// say cuts what a complaint quotes of the document.
func say(k jsonschema.ErrorKind, printer *message.Printer) string {
	if enum, ok := k.(*kind.Enum); ok && len(enum.Want) > 20 {
		return "is none of the values that are allowed"
	}
	const most = 300
	s := k.LocalizedString(printer)
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return s
}

// place spells a location as $.items[2].name.
func place(doc any, tokens []string) string {
	var b strings.Builder
	b.WriteByte('$')
	for _, token := range tokens {
		switch v := doc.(type) {
		case []any:
			b.WriteString("[" + token + "]")
			doc = nil
			if i, err := strconv.Atoi(token); err == nil && i < len(v) {
				doc = v[i]
			}
			continue
		case map[string]any:
			doc = v[token]
		}
		if plain.MatchString(token) {
			b.WriteString("." + token)
		} else {
			b.WriteString("[" + strconv.Quote(token) + "]")
		}
	}
	return b.String()
}

var plain = pattern.New(`^[A-Za-z_$][A-Za-z0-9_$-]*$`)

// Document is the JSON document that an answer in words consists of, or that is in its only block of code: models like
// to put a fence around what they are asked for.
func Document(answer string) (json.RawMessage, bool) {
	text := strings.TrimSpace(answer)
	if !json.Valid([]byte(text)) {
		text = block(text)
	}
	if !json.Valid([]byte(text)) {
		return nil, false
	}
	return json.RawMessage(text), true
}

// block returns the text between the only two fences of a text. A fence begins a line, so no JSON document has one.
func block(text string) string {
	var inside strings.Builder
	fences := 0
	for line := range strings.Lines(text) {
		switch {
		case strings.HasPrefix(strings.TrimSpace(line), "```"):
			fences++
		case fences == 1:
			inside.WriteString(line)
		}
	}
	if fences != 2 {
		return ""
	}
	return strings.TrimSpace(inside.String())
}
