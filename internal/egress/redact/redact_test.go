package redact

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"
	"unicode/utf8"

	"go.uber.org/goleak"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/secret"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func compile(t testing.TB, values ...string) *Set {
	t.Helper()
	var all []secret.Value
	for _, v := range values {
		all = append(all, secret.New(v))
	}
	s, err := New(all...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// encoders are real libraries' encodings of values.
var encoders = map[string]func(string) string{
	"raw":          func(s string) string { return s },
	"query":        url.QueryEscape,
	"path":         url.PathEscape,
	"query lower":  func(s string) string { return lowerEscapes(url.QueryEscape(s)) },
	"every %":      func(s string) string { return each(s, func(b byte) string { return fmt.Sprintf("%%%02X", b) }) },
	"json":         func(s string) string { b, _ := json.Marshal(s); return string(b[1 : len(b)-1]) },
	"json plain":   plainJSON,
	"json slashes": func(s string) string { return strings.ReplaceAll(plainJSON(s), "/", `\/`) },
	"every \\u":    func(s string) string { return units(s, `\u%04x`) },
	"every \\U":    func(s string) string { return units(s, `\u%04X`) },
	"html":         html.EscapeString,
	"hex":          func(s string) string { return hex.EncodeToString([]byte(s)) },
	"HEX":          func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	"hex apart":    func(s string) string { return fmt.Sprintf("% x", s) },
	"hex colons":   func(s string) string { return strings.ReplaceAll(fmt.Sprintf("% X", s), " ", ":") },
	"query twice":  func(s string) string { return url.QueryEscape(url.QueryEscape(s)) },
	"path twice":   func(s string) string { return lowerEscapes(url.PathEscape(url.PathEscape(s))) },
	"every %25":    func(s string) string { return each(s, func(b byte) string { return fmt.Sprintf("%%25%02X", b) }) },
	"json twice":   func(s string) string { return plainJSON(plainJSON(s)) },
	"json in json": func(s string) string { b, _ := json.Marshal(s); return plainJSON(string(b[1 : len(b)-1])) },
	"html twice":   func(s string) string { return html.EscapeString(html.EscapeString(s)) },
	"entities":     func(s string) string { return runes(s, "&#%d;") },
	"hex entities": func(s string) string { return runes(s, "&#x%X;") },
	"every \\x":    func(s string) string { return each(s, func(b byte) string { return fmt.Sprintf(`\x%02x`, b) }) },
	"every \\u{}":  func(s string) string { return runes(s, `\u{%x}`) },
}

func runes(s, format string) string {
	var out strings.Builder
	for _, r := range s {
		fmt.Fprintf(&out, format, r)
	}
	return out.String()
}

func each(s string, f func(byte) string) string {
	var out strings.Builder
	for i := range len(s) {
		out.WriteString(f(s[i]))
	}
	return out.String()
}

func units(s, format string) string {
	var out strings.Builder
	for _, u := range utf16.Encode([]rune(s)) {
		fmt.Fprintf(&out, format, u)
	}
	return out.String()
}

var escape = regexp.MustCompile(`%[0-9A-F]{2}`)

func lowerEscapes(s string) string { return escape.ReplaceAllStringFunc(s, strings.ToLower) }

func plainJSON(s string) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s)
	return b.String()[1 : b.Len()-2] // without quotes and newline
}

var values = map[string]string{
	"key":      "sk-ant-api03-Zm9vYmFy_0123456789-abcdefAA",
	"short":    "hunter2!",
	"quotes":   `"quoted", "twice"`,
	"symbols":  `p@ss w/rd+"<&>'\%=?#;` + "`~",
	"base64":   "dGhpcyBpcyBub3QgYSBrZXk/+w==",
	"repeated": "aaaaaaaaaaaa",
	"overlaps": "abababab-abababab",
	"unicode":  "пароль-日本語-🔑",
	"stars":    "****key*key****",
}

func TestEveryEncoding(t *testing.T) {
	const before, after = "before: ", " :after"
	for what, value := range values {
		s := compile(t, value)
		for name, encode := range encoders {
			coded := encode(value)
			want := before + strings.Repeat(string(s.mask), len(coded)) + after
			if got := s.Text(before + coded + after); got != want {
				t.Errorf("%s in %s:\n  text %s\n  got  %s", what, name, before+coded+after, got)
			}
		}
	}
}

// TestUTF16 covers both byte orders.
func TestUTF16(t *testing.T) {
	value := values["key"]
	s := compile(t, value)
	text := "id: " + value + " :di"
	stars := strings.Repeat("*", 2*len(value)-1)
	for zero, want := range map[string]string{"after": "i\x00d\x00:\x00 \x00" + stars + "\x00 \x00:\x00d\x00i\x00",
		"before": "\x00i\x00d\x00:\x00 \x00" + stars + "\x00 \x00:\x00d\x00i"} {
		in := each(text, func(b byte) string {
			return map[string]string{"after": string(b) + "\x00", "before": "\x00" + string(b)}[zero]
		})
		if got := s.Text(in); got != want {
			t.Errorf("zeroes %s: %q, want %q", zero, got, want)
		}
	}
}

// TestUTF32 covers both byte orders, as TestUTF16 does.
func TestUTF32(t *testing.T) {
	value := values["key"]
	s := compile(t, value)
	stars := strings.Repeat("*", 4*len(value)-3)
	little := each(": "+value+" :", func(b byte) string { return string(b) + "\x00\x00\x00" })
	zeroes := "\x00\x00\x00"
	if got, want := s.Text(little), ":"+zeroes+" "+zeroes+stars+zeroes+" "+zeroes+":"+zeroes; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	big := each(": "+value+" :", func(b byte) string { return "\x00\x00\x00" + string(b) })
	if got, want := s.Text(big), zeroes+":"+zeroes+" "+zeroes+stars+zeroes+" "+zeroes+":"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestBase32: a value begins at one of five alignments.
func TestBase32(t *testing.T) {
	for what, value := range values {
		s := compile(t, value)
		for before := range 5 {
			coded := base32.StdEncoding.EncodeToString([]byte(strings.Repeat("\xff", before) + value + "\xff\xff"))
			for _, coded := range []string{coded, strings.ToLower(coded)} {
				got := s.Text(coded)
				for i := range len(strings.TrimRight(coded, "=")) {
					inside := 5*i >= 8*before && 5*i+4 < 8*(before+len(value))
					if masked := got[i] == s.mask; masked != inside {
						t.Fatalf("%s after %d bytes, character %d:\n  %s\n  %s", what, before, i, coded, got)
					}
				}
			}
		}
	}
}

// TestBase64InLines: as MIME and PEM write it. What stands together of a value is found if it is long enough.
func TestBase64InLines(t *testing.T) {
	value := values["key"]
	s := compile(t, value)
	for _, end := range []string{"\n", "\r\n"} {
		for before := range 76 {
			coded := base64.StdEncoding.EncodeToString([]byte(strings.Repeat("-", before) + value + strings.Repeat("-", 30)))
			var lines strings.Builder
			for line := range slices.Chunk([]byte(coded), 76) {
				lines.WriteString(string(line) + end)
			}
			got := s.Text(lines.String())
			if len(got) != lines.Len() {
				t.Fatalf("the length changed: %q", got)
			}
			together := 8*before/6%76 < 66 // of the line that the value begins in, at least eight characters are of it
			bare := strings.NewReplacer("\n", "", "\r", "").Replace(got)
			if together && strings.Contains(bare, coded[(8*before+5)/6+9:][:9]) {
				t.Errorf("after %d bytes: %q", before, got)
			}
		}
	}
	if got := s.Text(coded64(value)[:7] + "\n" + coded64(value)[7:]); got != coded64(value)[:7]+"\n"+coded64(value)[7:] {
		t.Errorf("a line of seven characters: %q", got)
	}
}

func coded64(s string) string { return base64.RawStdEncoding.EncodeToString([]byte(s)) }

// TestNames: the name of a header has no case.
func TestNames(t *testing.T) {
	const value = "Labkey-7Qz9x4Wv2Tn8"
	s := compile(t, value, "QQQQQQQQQ")
	for name, want := range map[string]string{
		http.CanonicalHeaderKey("X-" + value):                     "X-*******************",
		strings.ToLower("x-" + value + value):                     "x-**************************************",
		"X-" + strings.ToUpper(hex.EncodeToString([]byte(value))): "X-" + strings.Repeat("*", 2*len(value)),
		"Qqqqqqqqqqq":  "***********",
		"X-Labkey-7Qz": "X-Labkey-7Qz", "Date": "Date", "": "",
	} {
		if got := s.name(name); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
}

// TestEveryAlignment: in base64 a value begins at one of three alignments, and shares the characters at its ends with
// its neighbours.
func TestEveryAlignment(t *testing.T) {
	for name, encoding := range map[string]*base64.Encoding{"std": base64.StdEncoding, "url": base64.URLEncoding,
		"raw": base64.RawStdEncoding, "raw url": base64.RawURLEncoding} {
		for what, value := range values {
			s := compile(t, value)
			for before := range 7 {
				for after := range 4 {
					// Bytes with all bits set show the affected characters.
					prefix, suffix := strings.Repeat("\xff", before), strings.Repeat("\xff", after)
					coded := encoding.EncodeToString([]byte(prefix + value + suffix))
					got := s.Text(coded)
					if len(got) != len(coded) {
						t.Fatalf("%s of %s: the length changed", name, what)
					}
					for i := range len(coded) {
						firstBit, lastBit := 6*i, 6*i+5 // the bits of this character
						inside := firstBit >= 8*before && lastBit < 8*(before+len(value))
						if masked := got[i] == s.mask; masked != inside {
							t.Fatalf("%s of %s after %d and before %d bytes, character %d:\n  %s\n  %s", name, what, before,
								after, i, coded, got)
						}
					}
				}
			}
		}
	}
}

func TestWhatIsNotTheValueStays(t *testing.T) {
	value := values["key"]
	s := compile(t, value, values["repeated"])
	for _, text := range []string{"", value[:len(value)-1], value[1:], value[:20] + " " + value[20:],
		strings.ToUpper(value), "aaaaaaaaaaa",
		hex.EncodeToString([]byte(value))[1:], base64.StdEncoding.EncodeToString([]byte(value[1:]))} {
		if got := s.Text(text); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
	if got := (*Set)(nil).Text(value); got != value {
		t.Errorf("the nil Set changes %q", got)
	}
	if got := compile(t).Text(value); got != value {
		t.Errorf("the empty Set changes %q", got)
	}
}

func TestSeveralValues(t *testing.T) {
	s := compile(t, "first-secret", "secret-second", "first-secret") // they overlap
	for text, want := range map[string]string{
		"first-secret and secret-second": "************ and *************",
		"first-secret-second":            "*******************",
		"first-secretsecret-second":      "*************************",
		"first-secre secret-secon":       "first-secre secret-secon",
		"first-first-secret":             "first-************",
	} {
		if got := s.Text(text); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
	}
}

func TestLengths(t *testing.T) {
	for _, n := range []int{0, MinLength - 1, MaxLength + 1} {
		value := strings.Repeat("v", n)
		_, err := New(secret.New(value))
		if cove.ErrorCode(err) != cove.InvalidArgument {
			t.Errorf("%d bytes: %v", n, err)
		}
		if n > 0 && strings.Contains(fmt.Sprint(err), value) {
			t.Errorf("the error shows the value: %v", err)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	long := each(strings.Repeat("x", MaxLength), func(byte) string { return string('!' + rune(r.IntN(90))) })
	s := compile(t, long)
	if size := 4*len(s.first) + 12*len(s.edges); size > 1300*MaxLength {
		t.Errorf("the longest value takes %d KiB", size>>10)
	}
	if got := s.Text(url.QueryEscape(long) + "x"); strings.Trim(got, string(s.mask)) != "x" {
		t.Error("the longest value was not found")
	}
}

// TestNothingWaits: each piece of a stream is returned at once, except for a possible beginning of a value.
func TestNothingWaits(t *testing.T) {
	in, out := io.Pipe()
	r := compile(t, values["key"]).Reader(in)
	steps := []struct{ in, out string }{
		{"data: hello\n\n", "data: hello\n\n"},
		{".", "."},
		{"data: sk-ant-", "data: "},
		{"xyz.\n", "sk-ant-xyz.\n"},
		{"more sk-ant-api", "more "},
		{values["key"][10:] + "\n", strings.Repeat("*", len(values["key"])) + "\n"},
		{"is", "i"},
		{" ", "s "},
		{"100%", "100"},
		{" sure\n", "% sure\n"},
	}
	go func() {
		for _, s := range steps {
			io.WriteString(out, s.in) // it returns when all bytes have been read
		}
		out.Close()
	}()
	p := make([]byte, 1000)
	for _, s := range steps {
		n, err := r.Read(p)
		if string(p[:n]) != s.out || err != nil {
			t.Errorf("after %q came %q, %v; want %q", s.in, p[:n], err, s.out)
		}
	}
	if n, err := r.Read(p); n != 0 || err != io.EOF {
		t.Errorf("the end: %d, %v", n, err)
	}
}

func TestReaders(t *testing.T) {
	value := values["key"]
	s := compile(t, value)
	text := strings.Repeat("some text, then "+value+", "+url.QueryEscape(value)+"\n", 3000) + value[:10]
	want := strings.ReplaceAll(text, value, strings.Repeat("*", len(value)))
	for name, wrap := range map[string]func(io.Reader) io.Reader{
		"plain": func(r io.Reader) io.Reader {
			return r
		}, "one byte": iotest.OneByteReader, "half": iotest.HalfReader, "data with end": iotest.DataErrReader,
	} {
		got, err := io.ReadAll(s.Reader(wrap(strings.NewReader(text))))
		if err != nil || string(got) != want {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
		got, err = io.ReadAll(iotest.OneByteReader(s.Reader(wrap(strings.NewReader(text)))))
		if err != nil || string(got) != want {
			t.Errorf("%s, read by bytes: %d bytes, %v", name, len(got), err)
		}
	}
	broken := errors.New("broken")
	got, err := io.ReadAll(s.Reader(io.MultiReader(strings.NewReader("text "+value[:9]), iotest.ErrReader(broken))))
	if !errors.Is(err, broken) || string(got) != "text "+value[:9] {
		t.Errorf("a stream that breaks: %q, %v", got, err)
	}
}

// TestFollow: values count from the moment they are known, even if their beginning came before; offsets are preserved.
func TestFollow(t *testing.T) {
	first, both := compile(t, "first-value-1"), compile(t, "first-value-1", "second-value-2")
	var known *Set
	var unknown error
	next, broken := "", error(nil)
	r := Follow(readerFunc(func(p []byte) (int, error) { return copy(p, next), broken }), func() (*Set, error) {
		return known, unknown
	})
	for i, c := range []struct {
		known   *Set
		unknown error
		comes   string
		broken  error
		want    string
	}{
		{comes: "first-value-1 passes\n", want: "first-value-1 passes\n"},
		{known: first, comes: "no first-value-1, but second-value-2\n", want: "no *************, but second-value-2\n"},
		{known: first, comes: "and second-value-2 first-va", want: "and second-value-2 "},
		{known: both, comes: "lue-1 nor second-value-2\nsecond-", want: "************* nor **************\n"},
		{known: both, comes: "hand\n", want: "second-hand\n"},
		{known: both, unknown: io.ErrNoProgress, comes: "first\nsecond", want: "xxxxx\nxxxxxx"},
		{known: both, comes: "the end first-v", broken: io.ErrUnexpectedEOF, want: "the end "},
	} {
		known, unknown, next, broken = c.known, c.unknown, c.comes, c.broken
		p := make([]byte, 100)
		n, err := r.Read(p)
		if string(p[:n]) != c.want || err != nil {
			t.Errorf("%d: %q %v, want %q", i, p[:n], err, c.want)
		}
	}
	if n, err := r.Read(make([]byte, 10)); n != 0 || err != io.ErrUnexpectedEOF {
		t.Errorf("after it broke off: %d %v", n, err)
	}
	known = both
	if all, err := io.ReadAll(Follow(strings.NewReader("the end first-v"), func() (*Set, error) {
		return known, nil
	})); err != nil || string(all) != "the end first-v" {
		t.Errorf("%q %v", all, err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestMemory: the memory of a stream is constant, even if all of it looks like a beginning.
func TestMemory(t *testing.T) {
	value := strings.Repeat("a", 400) + "b"
	r := compile(t, value).reader(io.LimitReader(repeat{'a'}, 1<<16), buffered)
	n, err := io.Copy(io.Discard, struct{ io.Reader }{r})
	if n != 1<<16 || err != nil {
		t.Fatal(n, err)
	}
	if c := cap(r.buffer); c > 8*len(value)+2*buffered {
		t.Errorf("the buffer grew to %d KiB", c>>10)
	}
	if c := cap(r.scanner.active); c > 4*len(value) {
		t.Errorf("there were %d attempts at once", c)
	}
}

// TestAmbiguity: threads do not multiply where two backslashes are either two characters or one.
func TestAmbiguity(t *testing.T) {
	s := compile(t, strings.Repeat(`\`, 60))
	scan, text := scanner{set: s}, []byte(strings.Repeat(`\`, 200))
	for i := range text {
		if scan.scan(text[:i+1], i); len(scan.active) > len(s.first) {
			t.Fatalf("after %d bytes there are %d attempts, with %d states", i+1, len(scan.active), len(s.first))
		}
	}
	if string(text) != strings.Repeat("*", len(text)) {
		t.Errorf("it became %s", text)
	}
}

// TestTheMaskIsNoPartOfAValue: the mask and its neighbours must not form a value.
func TestTheMaskIsNoPartOfAValue(t *testing.T) {
	for _, value := range []string{"*******a", "a*******", "********", "*#x_.~^X"} {
		text := value + value[len(value)-1:] + " " + value[:1] + value
		if got := compile(t, value).Text(text); strings.Contains(got, value) {
			t.Errorf("%q became %q", text, got)
		}
	}
}

type repeat struct{ b byte }

func (r repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.b
	}
	return len(p), nil
}

// oracle masks the matches of regular expressions one after another.
func oracle(text string, mask byte, values ...string) string {
	out := []byte(text)
	wide := widen(text)
	for _, v := range values {
		for _, e := range expressions(v) {
			re := regexp.MustCompile("^(?s:" + e + ")")
			re.Longest()
			at := 0 // position in wide
			for i := range len(text) {
				if m := re.FindString(wide[at:]); m != "" {
					for j := range utf8.RuneCountInString(m) {
						out[i+j] = mask
					}
				}
				_, size := utf8.DecodeRuneInString(wide[at:])
				at += size
			}
		}
	}
	return string(out)
}

// widen makes each byte a character, since regular expressions match characters.
func widen(s string) string {
	return each(s, func(b byte) string { return string(rune(b)) })
}

func expressions(value string) []string {
	var escaped strings.Builder
	for i := 0; i < len(value); {
		r, size := utf8.DecodeRuneInString(value[i:])
		raw := value[i : i+size]
		if r == utf8.RuneError && size == 1 {
			r = rune(raw[0])
		}
		i += size
		plain := regexp.QuoteMeta(widen(raw))
		percent := each(raw, func(b byte) string { return fmt.Sprintf("%%%02x", b) })
		forms := []string{percent, units(string(r), `\u%04x`)}
		if r >= 128 || !regexp.MustCompile(`[A-Za-z0-9]`).MatchString(raw) {
			forms = append(forms, map[string][]string{`"`: {`\"`, "&quot;"}, `\`: {`\\`}, "/": {`\/`}, "\b": {`\b`},
				"\f": {`\f`}, "\n": {`\n`}, "\r": {`\r`}, "\t": {`\t`}, "&": {"&amp;"}, "<": {"&lt;"}, ">": {"&gt;"},
				"'": {"&apos;"}, " ": {"+"}}[raw]...)
			if r < 128 {
				forms = append(forms, fmt.Sprintf("&#%d;", r), fmt.Sprintf("&#x%x;", r), fmt.Sprintf(`\x%02x`, r),
					fmt.Sprintf(`\u{%x}`, r))
			}
			for _, f := range slices.Clone(forms) {
				forms = append(forms, strings.NewReplacer("%", "%25", "+", "%2b", "&", "&amp;", `\`, `\\`, `"`, `\"`).Replace(f))
			}
		}
		for i, f := range forms {
			forms[i] = "(?i:" + regexp.QuoteMeta(f) + ")"
		}
		escaped.WriteString("(?:" + plain + "|" + strings.Join(forms, "|") + ")")
	}
	var bytes, pairs []string
	for i := range len(value) {
		bytes = append(bytes, regexp.QuoteMeta(string(rune(value[i]))))
		pairs = append(pairs, hex.EncodeToString([]byte{value[i]}))
	}
	all := []string{escaped.String(), strings.Join(bytes, `\x00`), strings.Join(bytes, `\x00\x00\x00`),
		"(?i:" + strings.Join(pairs, "") + ")", "(?i:" + strings.Join(pairs, "[ :]") + ")"}
	for _, name := range []string{"every %25", "every \\x"} {
		all = append(all, "(?i:"+regexp.QuoteMeta(encoders[name](value))+")")
	}
	for _, name := range []string{"entities", "hex entities", "every \\u{}"} {
		if coded := encoders[name](value); utf8.ValidString(value) {
			all = append(all, "(?i:"+regexp.QuoteMeta(coded)+")")
		} else {
			all = append(all, "(?i:"+regexp.QuoteMeta(encoders[name](widen(value)))+")")
		}
	}
	for before := range 5 {
		coded := base32.StdEncoding.EncodeToString(append(make([]byte, before), value...))
		coded = coded[(8*before+4)/5 : (before+len(value))*8/5]
		all = append(all, "(?:"+coded[:8]+"|"+strings.ToLower(coded[:8])+")(?i:"+coded[8:]+")")
	}
	for before := range 3 {
		coded := base64.StdEncoding.EncodeToString(append(make([]byte, before), value...))
		coded = coded[[]int{0, 2, 3}[before] : (before+len(value))*8/6]
		for i := len(coded) - 1; i >= 8; i-- {
			coded = coded[:i] + "\n" + coded[i:]
		}
		coded = strings.NewReplacer("\n", `[\r\n]*`, "+", `(?:\+|-|(?i:%2b|\\u002b|&#x2b;|&#43;))`, "/",
			`(?:/|_|\\/|(?i:%2f|\\u002f|&#x2f;|&#47;))`).Replace(coded)
		all = append(all, coded)
	}
	return all
}

// mixed escapes each character of a value in a random way.
func mixed(value string, r *rand.Rand) string {
	var out strings.Builder
	for _, c := range value {
		forms := []string{string(c), each(string(c), func(b byte) string {
			return fmt.Sprintf("%%%02x", b)
		}), units(string(c), `\u%04X`), plainJSON(string(c)), url.QueryEscape(string(c))}
		out.WriteString(forms[r.IntN(len(forms))])
	}
	return out.String()
}

// FuzzReader: for any value, in any encoding, between any text and in any pieces, exactly the oracle's matches are
// masked, and the value is gone.
func FuzzReader(f *testing.F) {
	for _, v := range values {
		f.Add(v, "some text before ", "and after", uint64(1))
		f.Add(v, v[:7], v[3:], uint64(2))
	}
	f.Add("%2%2%25%", "%25", "%252525%25%25", uint64(3))
	f.Add(`\\\"\u00`, `\\u005c`, `\\\\\`, uint64(4))
	f.Add("&amp;&am", "&amp;amp;", "&#38;", uint64(5))
	f.Add("\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8", "\xff", "\xc3\xbf", uint64(6))
	f.Fuzz(func(t *testing.T, value, before, after string, seed uint64) {
		if len(value) < MinLength || len(value) > 64 || len(before)+len(after) > 300 {
			t.Skip()
		}
		r := rand.New(rand.NewPCG(seed, seed))
		s := compile(t, value, values["key"])
		var text strings.Builder
		var hidden []string
		text.WriteString(before)
		names := []string{"raw", "query", "path", "query lower", "every %", "html", "hex", "HEX", "hex apart", "hex colons",
			"query twice", "path twice", "every %25", "every \\x"}
		if utf8.ValidString(value) {
			names = append(names, "json", "json plain", "json slashes", "every \\u", "every \\U", "mixed", "json twice",
				"json in json", "html twice", "entities", "hex entities", "every \\u{}")
		}
		for range 1 + r.IntN(4) {
			name := names[r.IntN(len(names))]
			coded := mixed(value, r)
			if name != "mixed" {
				coded = encoders[name](value)
			}
			hidden = append(hidden, coded)
			text.WriteString(coded + after)
			if r.IntN(2) == 0 {
				text.WriteString(base64.StdEncoding.EncodeToString([]byte(before + value + after)))
				text.WriteString(base32.StdEncoding.EncodeToString([]byte(before + value + after)))
			}
		}
		got, err := io.ReadAll(s.Reader(&pieces{[]byte(text.String()), r}))
		if err != nil {
			t.Fatal(err)
		}
		if want := oracle(text.String(), s.mask, value, values["key"]); string(got) != want {
			t.Errorf("text %q\ngot  %q\nwant %q", text.String(), got, want)
		}
		for _, h := range hidden {
			if strings.IndexByte(value, s.mask) < 0 && bytes.Contains(got, []byte(h)) {
				t.Errorf("value %q: %q is still in %q, of %q", value, h, got, text.String())
			}
		}
	})
}

// pieces reads a few bytes at a time.
type pieces struct {
	rest []byte
	r    *rand.Rand
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), 1+p.r.IntN(9))], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}

func BenchmarkReader(b *testing.B) {
	keys := []string{values["key"], "ghp_0123456789abcdefABCDEF0123456789abcd", "sk-proj-" + strings.Repeat("aB3_", 30),
		"hunter2!hunter2", "AKIAIOSFODNN7EXAMPLE"}
	r := rand.New(rand.NewPCG(1, 2))
	text := map[string][]byte{}
	var prose, doc strings.Builder
	for prose.Len() < 1<<20 {
		prose.WriteString([]string{"the ", "sandbox ", "asks ", "a ", "key ", "skips ", "hunter ",
			"data: {\"type\":\"content_block_delta\"} ", "100% ", "\n"}[r.IntN(10)])
		fmt.Fprintf(&doc, `{"id":%d,"url":"https:\/\/example.com\/a%%20b","token":"\u00e9%x"},`, r.IntN(1e9), r.Uint64())
	}
	random := make([]byte, 1<<20)
	for i := range random {
		random[i] = byte(r.Uint32())
	}
	text["prose"], text["json"], text["random"] = []byte(prose.String()), []byte(doc.String())[:1<<20], random
	text["base64"] = []byte(base64.StdEncoding.EncodeToString(random))[:1<<20]
	text["nearly"] = bytes.Repeat([]byte(keys[0][:20]), 1<<20/20) // the text of an attacker who knows half of a value
	for name, t := range text {
		for _, n := range []int{1, 5} {
			s := compile(b, keys[:n]...)
			b.Run(fmt.Sprintf("%s/%d", name, n), func(b *testing.B) {
				b.SetBytes(int64(len(t)))
				for b.Loop() {
					io.Copy(io.Discard, struct{ io.Reader }{s.Reader(bytes.NewReader(t))})
				}
			})
		}
	}
}

func BenchmarkNew(b *testing.B) {
	v := secret.New(values["key"])
	for b.Loop() {
		if _, err := New(v); err != nil {
			b.Fatal(err)
		}
	}
}
