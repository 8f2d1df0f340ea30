package secret

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"encoding/xml"
	"errors"
	"expvar"
	"fmt"
	htmltemplate "html/template"
	"log"
	"log/slog"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"text/template"

	"go.yaml.in/yaml/v3"
)

const canary = "sk-canary-0123456789abcdef"

// holder contains the value in every position that printers treat differently.
type holder struct {
	Exported   Value
	unexported Value
	Pointer    *Value
	inside     *Value
	Any        any
	List       []Value
	Map        map[string]Value
	private    struct{ deeper Value }
}

func full() holder {
	v := New(canary)
	h := holder{Exported: v, unexported: v, Pointer: &v, inside: &v, Any: v, List: []Value{v},
		Map: map[string]Value{"k": v}}
	h.private.deeper = v
	return h
}

// everything returns everything printable that contains the value.
func everything() map[string]any {
	v, h := New(canary), full()
	return map[string]any{
		"value": v, "pointer": &v, "slice": []Value{v}, "array": [1]Value{v}, "map": map[string]Value{"k": v},
		"struct": h, "struct pointer": &h, "any": []any{v, &v, h}, "channel of": struct{ c chan Value }{},
		"error": fmt.Errorf("cannot use %v: %w", v, errors.New("refused")),
	}
}

func clean(t *testing.T, how, out string) {
	t.Helper()
	for _, leak := range []string{canary, canary[:12], fmt.Sprintf("%x", canary), fmt.Sprintf("%X", canary),
		fmt.Sprintf("% x", canary), fmt.Sprint([]byte(canary))} {
		if strings.Contains(out, leak) {
			t.Errorf("%s leaks: %s", how, out)
		}
	}
}

func TestReveal(t *testing.T) {
	if got := New(canary).Reveal(); got != canary {
		t.Errorf("Reveal() = %q", got)
	}
	if v := (Value{}); v.Reveal() != "" || !v.IsZero() || !New("").IsZero() || New(canary).IsZero() {
		t.Error("the zero Value is the empty secret, and no other is")
	}
	a, b := New(canary), New(canary+"x")
	if !a.Equal(New(canary)) || a.Equal(b) || a.Equal(Value{}) || !(Value{}).Equal(Value{}) {
		t.Error("Equal does not compare the strings")
	}
}

func TestEveryVerb(t *testing.T) {
	for name, x := range everything() {
		for _, verb := range "bcdeEfFgGoOpqstTUvwxX" {
			for _, flags := range []string{"", "+", "#", "-", " ", "0", "+#", "40", ".3", "#.3", "[1]"} {
				format := "%" + flags + string(verb)
				clean(t, name+" "+format, fmt.Sprintf(format, x))
				clean(t, name+" Errorf "+format, fmt.Errorf(format, x).Error())
			}
		}
		clean(t, name+" Sprint", fmt.Sprint(x)+fmt.Sprintln(x))
	}
	for format, want := range map[string]string{"%v": hidden, "%+v": hidden, "%#v": hidden, "%s": hidden, "%q": hidden,
		"%x": hidden, "%d": hidden} {
		if got := fmt.Sprintf(format, New(canary)); got != want {
			t.Errorf("Sprintf(%q) = %q, want %q", format, got, want)
		}
	}
}

func TestEncoders(t *testing.T) {
	v := New(canary)
	encoders := map[string]func(any) (string, error){
		"json": func(x any) (string, error) { b, err := json.Marshal(x); return string(b), err },
		"yaml": func(x any) (string, error) { b, err := yaml.Marshal(x); return string(b), err },
		"xml":  func(x any) (string, error) { b, err := xml.Marshal(x); return string(b), err },
		"gob": func(x any) (string, error) {
			var b bytes.Buffer
			err := gob.NewEncoder(&b).Encode(x)
			return b.String(), err
		},
	}
	for name, encode := range encoders {
		for what, x := range everything() {
			out, err := encode(x)
			clean(t, name+" of "+what, fmt.Sprint(out, err))
		}
	}
	for name, want := range map[string]string{"json": `"[secret]"`, "yaml": "'[secret]'\n",
		"xml": "<Value>[secret]</Value>"} {
		if got, err := encoders[name](v); err != nil || got != want {
			t.Errorf("%s gives %q, %v; want %q", name, got, err, want)
		}
	}
	if out, err := json.Marshal(full()); err != nil || strings.Count(string(out), hidden) != 5 {
		t.Errorf("json of the struct: %s, %v", out, err)
	}
	f := expvar.Func(func() any { return full() })
	clean(t, "expvar", f.String())
}

func TestLoggers(t *testing.T) {
	var out bytes.Buffer
	for _, handler := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		l := slog.New(handler)
		for name, x := range everything() {
			l.With("with", x).WithGroup("g").Info(name, "key", x, slog.Any("any", x), slog.Group("group", "in", x))
		}
	}
	log.New(&out, "", 0).Println(New(canary), full())
	clean(t, "log", out.String())
	if v := slog.AnyValue(New(canary)).Resolve(); v.Kind() != slog.KindString || v.String() != hidden {
		t.Errorf("a handler of its own sees %v of kind %v", v, v.Kind())
	}
	if strings.Count(out.String(), hidden) < 20 {
		t.Errorf("the log does not say that something is hidden:\n%s", out.String())
	}
}

func TestTemplates(t *testing.T) {
	const text = `{{.}} {{printf "%s %q %x %#v" . . . .}} {{print .}} {{html .}} {{js .}} {{urlquery .}}`
	for name, x := range everything() {
		var out bytes.Buffer
		if err := template.Must(template.New("").Parse(text)).Execute(&out, x); err != nil {
			clean(t, "text/template error", err.Error())
		}
		if err := htmltemplate.Must(htmltemplate.New("").Parse(`<a href="/{{.}}">{{.}}</a><script>x={{.}}</script>`)).Execute(
			&out, x); err != nil {
			clean(t, "html/template error", err.Error())
		}
		clean(t, "templates of "+name, out.String())
	}
}

// dump prints everything that reflection reaches, unexported fields and pointers included, as debug printers do.
func dump(out *strings.Builder, v reflect.Value, depth int) {
	if depth > 10 {
		return
	}
	switch v.Kind() {
	case reflect.String:
		out.WriteString(v.String())
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			dump(out, v.Elem(), depth+1)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			dump(out, v.Field(i), depth+1)
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			dump(out, v.Index(i), depth+1)
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			dump(out, k, depth+1)
			dump(out, v.MapIndex(k), depth+1)
		}
	case reflect.Uint8:
		out.WriteByte(byte(v.Uint()))
	}
}

func TestReflectionFindsNothing(t *testing.T) {
	for name, x := range everything() {
		var out strings.Builder
		dump(&out, reflect.ValueOf(x), 0)
		clean(t, "reflection of "+name, out.String())
	}
	var out strings.Builder
	dump(&out, reflect.ValueOf(struct{ p *struct{ s string } }{&struct{ s string }{canary}}), 0)
	if out.String() != canary {
		t.Errorf("the dump does not find what is there: %q", out.String())
	}
}

// TestPanic: the output of a crash contains no secret. The test program runs itself.
func TestPanic(t *testing.T) {
	switch os.Getenv("COVE_TEST_PANIC") {
	case "value":
		panic(New(canary))
	case "struct":
		panic(full())
	case "error":
		panic(fmt.Errorf("with %v and %+v", New(canary), full()))
	case "argument":
		func(v Value, h holder) { panic("with arguments") }(New(canary), full())
	}
	for _, how := range []string{"value", "struct", "error", "argument"} {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPanic$")
		cmd.Env = append(os.Environ(), "COVE_TEST_PANIC="+how, "GOTRACEBACK=all")
		out, err := cmd.CombinedOutput()
		if err == nil || !bytes.Contains(out, []byte("panic: ")) {
			t.Errorf("%s: no panic: %v\n%s", how, err, out)
		}
		clean(t, "panic with "+how, string(out))
	}
}
