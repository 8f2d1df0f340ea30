package adversary

import (
	"slices"
	"strings"

	"github.com/cove-sandbox/cove/test/adversary/lab"
	"github.com/cove-sandbox/cove/test/adversary/outcome"
)

// handshakeRows are attempts with the beginning of a connection: TLS, SOCKS, and what is neither (N4, N11, N23).
func handshakeRows() []row {
	return []row{
		{id: "N4.names", invariant: "E5", what: "name one host in CONNECT or SOCKS and another in TLS, or none",
			test: namesInTLS},
		{id: "N4.forms", invariant: "E5", what: "hide the name in TLS: in pieces, in 16 KiB, encrypted, in an old version",
			test: formsOfTLS},
		{id: "N4.not_tls", invariant: "E1", what: "speak another protocol on port 443 of an allowed host", test: notTLS},
		{id: "N11.socks", invariant: "E5", what: "have SOCKS take other forms, commands, and names with a NUL",
			test: socksForms},
		{id: "N23.leaves", invariant: "C5", what: "get a certificate for a host that is not allowed", test: leaves},
		{id: "N23.key", invariant: "C5",
			what: "find the authority's key, or have one sandbox's certificate of use in another", test: authorityKey},
	}
}

// insideTLS is a request that a program makes once it has TLS.
const insideTLS = "GET /inside HTTP/1.1\r\nHost: allowed.lab\r\nConnection: close\r\n\r\n"

// toAllowed are the ways that say allowed.lab, or nothing, before TLS does.
func toAllowed() map[string]outcome.Talk {
	return map[string]outcome.Talk{
		"by name":       {By: outcome.Direct, To: "allowed.lab:443"},
		"by an address": {By: outcome.Direct, At: "203.0.113.5:443"},
		"over IPv6":     {By: outcome.Direct, At: "[2001:db8:5::5]:443"},
		"CONNECT":       {By: outcome.Connect, To: "allowed.lab:443"},
		"SOCKS5":        {By: outcome.SOCKS, To: "allowed.lab:443"},
	}
}

func namesInTLS(c *trial) {
	b := c.outward(allow("allowed.lab", "also.lab"))
	c.internet().Forget()
	for route, t := range toAllowed() {
		t.TLS = true
		for _, name := range []string{"evil.lab", "cdn.lab", "x.allowed.lab", "xallowed.lab"} {
			t.Name, t.Hello, t.Send = name, "", strings.Replace(insideTLS, "allowed.lab", name, 1)
			b.stays(route+", then "+name, b.talk(t))
			t.Send = insideTLS
			b.stays(route+", then "+name+", then allowed.lab again", b.talk(t))
		}
		if t.By != outcome.Direct { // where the connection is for somebody already, not even for another that is allowed
			t.Name, t.Send = "also.lab", strings.Replace(insideTLS, "allowed.lab", "also.lab", 1)
			b.stays(route+", then also.lab", b.talk(t))
		}
		t.Hello, t.Send = outcome.HelloRaw, ""
		for _, name := range []string{"", lab.Web4.String(), lab.Evil4.String(), "allowed.lab.", "allowed.lab\x00.evil.lab",
			"evil.lab\x00allowed.lab", "allowed.lab evil.lab", strings.Repeat("a", 300) + ".lab"} {
			t.Name = name
			a := b.talk(t)
			if a.Outcome == outcome.Succeeded && t.By != outcome.Direct {
				c.Errorf("HOLE: %s, the name %q: %s", route, name, a)
			}
		}
	}
	b.quiet("allowed.lab")
	c.control(b, "allowed.lab")
	c.control(b, "also.lab")
}

func formsOfTLS(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.internet().Forget()
	for route, t := range toAllowed() {
		t.TLS = true
		for _, form := range []string{outcome.HelloBytes, outcome.HelloFragments, outcome.HelloLong} {
			t.Hello = form
			t.Name, t.Send = "evil.lab", strings.Replace(insideTLS, "allowed", "evil", 1)
			b.stays(route+", "+form, b.talk(t))
		}
		t.Hello, t.Name, t.Send = outcome.HelloOld, "allowed.lab", insideTLS
		if a := b.talk(t); a.Errno != "TLS" {
			c.Errorf("%s: TLS 1.1: %s", route, a)
		}
		t.Hello, t.Name, t.Send = outcome.HelloECH, "evil.lab", ""
		if a := b.talk(t); a.Outcome == outcome.Succeeded && t.By != outcome.Direct {
			c.Errorf("HOLE: %s, a denied name with an encrypted one: %s", route, a)
		}
	}
	b.quiet("allowed.lab")
	for route, t := range toAllowed() {
		t.TLS, t.Name, t.Send = true, "allowed.lab", insideTLS
		for _, t.Hello = range []string{"", outcome.HelloBytes, outcome.HelloFragments, outcome.HelloLong} {
			c.internet().Forget()
			if a := b.talk(t); !a.ok() || !b.seen("/inside") {
				c.Errorf("not tested: %s, %q: %s", route, t.Hello, a)
			}
		}
		// A name that is encrypted beside one that is allowed: the gateway ends
		// the handshake itself, so that nothing in it leaves.
		c.internet().Forget()
		t.Hello, t.Send = outcome.HelloECH, ""
		if a := b.talk(t); a.Outcome != outcome.Succeeded {
			c.Errorf("%s: a client that greases ECH: %s", route, a)
		}
		b.quiet("allowed.lab")
	}
	passes := c.outward("rules:\n  - {hosts: allowed.lab, ports: 443, pass_through: true}\n")
	c.internet().Forget()
	for route, t := range toAllowed() { // where TLS is passed through nobody could judge it
		t.TLS, t.Hello = true, outcome.HelloECH
		for _, t.Name = range []string{"allowed.lab", "evil.lab"} {
			if a := passes.talk(t); a.Outcome == outcome.Succeeded && t.By != outcome.Direct {
				c.Errorf("HOLE: %s, passed through with an encrypted name beside %s: %s", route, t.Name, a)
			}
		}
		t.Hello, t.Name, t.Send = "", "evil.lab", strings.Replace(insideTLS, "allowed", "evil", 1)
		passes.stays(route+", passed through to another name", passes.talk(t))
	}
	for _, p := range c.internet().Packets() {
		if p.To.Port() == 443 {
			c.Errorf("HOLE: something was dialled for a name that is encrypted or another: %s", p.To)
		}
	}
	for route, t := range toAllowed() {
		t.TLS, t.Name, t.Send = true, "allowed.lab", insideTLS
		if a := passes.talk(t); !a.ok() {
			c.Errorf("not tested: %s, passed through: %s", route, a)
		}
	}
}

func notTLS(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.internet().Forget()
	for route, t := range toAllowed() {
		for what, said := range map[string]string{"SSH": "SSH-2.0-OpenSSH_9.2\r\n", "SMTP": "EHLO x\r\n",
			"zeros": strings.Repeat("\x00", 100), "an alert": "\x15\x03\x01\x00\x02\x02\x00",
			"no hello": "\x16\x03\x01\x00\x04\x02\x00\x00\x00", "empty records": strings.Repeat("\x16\x03\x01\x00\x00", 1000),
			"SSLv2":              "\x80\x2e\x01\x00\x02\x00\x15\x00\x00\x00\x10" + strings.Repeat("x", 36),
			"HTTP/2 without TLS": "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
			"git":                "003agit-upload-pack /a/b\x00host=allowed.lab\x00", "Redis": "*1\r\n$4\r\nPING\r\n",
			"PostgreSQL": "\x00\x00\x00\x08\x04\xd2\x16\x2f", "BitTorrent": "\x13BitTorrent protocol",
			"random": token() + token()} {
			t.Send, t.Ended = said, true
			if a := b.talk(t); strings.Contains(a.text, "HTTP/1.1 200") {
				c.Errorf("HOLE: %s: %s: %s", route, what, a)
			}
		}
	}
	b.quiet("allowed.lab")
	c.control(b, "allowed.lab")
}

func socksForms(c *trial) {
	b := c.outward(allow("allowed.lab"))
	c.internet().Forget()
	const greeting = "\x05\x01\x00"
	name := func(n string) string { return "\x03" + string([]byte{byte(len(n))}) + n + "\x01\xbb" }
	for what, one := range map[string][2]string{
		"a denied name at a port of no clients": {greeting + "\x05\x01\x00\x03\x08evil.lab\x00\x16", "\x05\x00\x05\x02"},
		"a denied address":                      {greeting + "\x05\x01\x00\x01\x5d\xb8\xd8\x42\x01\xbb", "\x05\x00\x05\x02"},
		"an address as a name":                  {greeting + "\x05\x01\x00" + name("93.184.216.66"), "\x05\x00\x05\x02"},
		"a mapped address": {greeting + "\x05\x01\x00\x04" +
			strings.Repeat("\x00", 10) + "\xff\xff\x5d\xb8\xd8\x42\x01\xbb", "\x05\x00\x05\x02"},
		"a name with NUL":            {greeting + "\x05\x01\x00" + name("evil.lab\x00allowed.lab"), "\x05\x00\x05\x01"},
		"a name with NUL behind":     {greeting + "\x05\x01\x00" + name("allowed.lab\x00.evil.lab"), "\x05\x00\x05\x01"},
		"a name with a port":         {greeting + "\x05\x01\x00" + name("allowed.lab:22"), "\x05\x00\x05\x01"},
		"a user in the name":         {greeting + "\x05\x01\x00" + name("allowed.lab@evil.lab"), "\x05\x00\x05\x01"},
		"no name":                    {greeting + "\x05\x01\x00" + name(""), "\x05\x00\x05\x01"},
		"BIND":                       {greeting + "\x05\x02\x00" + name("allowed.lab"), "\x05\x00\x05\x07"},
		"UDP ASSOCIATE":              {greeting + "\x05\x03\x00" + name("allowed.lab"), "\x05\x00\x05\x07"},
		"another command":            {greeting + "\x05\x09\x00" + name("allowed.lab"), "\x05\x00\x05\x07"},
		"another kind of address":    {greeting + "\x05\x01\x00\x02\x0ballowed.lab\x01\xbb", "\x05\x00\x05\x08"},
		"a password that nobody has": {"\x05\x01\x02", "\x05\xff"},
		"SOCKS4":                     {"\x04\x01\x01\xbb\x5d\xb8\xd8\x22x\x00", "\x00\x5b"},
		"SOCKS4a":                    {"\x04\x01\x01\xbb\x00\x00\x00\x01x\x00allowed.lab\x00", "\x00\x5b"},
		"half a request":             {greeting + "\x05\x01\x00\x03\xffallowed.lab", "\x05\x00"},
	} {
		a := b.talk(outcome.Talk{By: outcome.Proxy, Send: one[0], Ended: true})
		if !strings.HasPrefix(a.text, one[1]) || strings.Contains(a.text, "\x05\x00\x05\x00") {
			c.Errorf("HOLE or not tested: %s: %x, want %x", what, a.text, one[1])
		}
	}
	b.quiet()
	if a := b.talk(outcome.Talk{By: outcome.Proxy, Send: greeting + "\x05\x01\x00" + name("allowed.lab"),
		Ended: true}); !strings.HasPrefix(a.text, "\x05\x00\x05\x00") {
		c.Errorf("not tested: the allowed name: %x", a.text)
	}
	c.control(b, "allowed.lab")
}

func leaves(c *trial) {
	b := c.outward(allow("allowed.lab", "*.wild.lab"))
	c.internet().Forget()
	for route, t := range toAllowed() {
		t.TLS, t.Hello, t.Send = true, outcome.HelloRaw, ""
		for _, name := range []string{"*.wild.lab", "*", "localhost", "metadata", "metadata.google.internal",
			"host.cove.internal"} {
			if t.Name = name; t.By == outcome.Direct {
				if a := b.talk(t); a.Outcome == outcome.Succeeded {
					c.Errorf("HOLE: %s: there is a certificate for %s", route, name)
				}
			}
		}
		for _, name := range []string{"evil.lab", "wild.lab", "a.b.wild.lab", "x.allowed.lab"} { // it carries the refusal alone
			if t.By != outcome.Direct {
				continue
			}
			inside := t
			inside.Hello, inside.Name = "", name
			inside.Send = "GET / HTTP/1.1\r\nHost: " + name + "\r\nConnection: close\r\n\r\n"
			if a := b.talk(inside); a.Count != 403 || !strings.Contains(a.text, "blocked by Cove's gateway") {
				c.Errorf("HOLE: %s: inside the certificate for %s: %s", route, name, a)
			}
		}
		b.quiet("allowed.lab")
		t.Name = "allowed.lab"
		if a := b.talk(t); a.Outcome != outcome.Succeeded {
			c.Errorf("not tested: %s: no certificate for allowed.lab: %s", route, a)
		}
	}
	t := outcome.Talk{By: outcome.Direct, To: "allowed.lab:443", TLS: true, Name: "allowed.lab", Send: insideTLS}
	if a := b.talk(t); len(a.Lines) != 3 || a.Lines[1] != "allowed.lab" || !strings.Contains(a.Lines[2], string(b.id)) {
		c.Errorf("the certificate is for %v, want allowed.lab alone, by this sandbox's authority", a.Lines[1:])
	}
}

func authorityKey(c *trial) {
	one, other := c.outward(allow("allowed.lab")), c.outward(allow("allowed.lab"))
	issuer := func(b *outward) string {
		a := b.talk(outcome.Talk{By: outcome.Direct, To: "allowed.lab:443", TLS: true, Name: "allowed.lab", Send: insideTLS})
		return strings.Join(a.Lines[min(2, len(a.Lines)):], "")
	}
	if issuer(one) == issuer(other) || issuer(one) == "" {
		c.Errorf("HOLE: two sandboxes have one authority: %q", issuer(one))
	}
	for _, b := range []*outward{one, other} {
		r := c.works(b.box, "trusts allowed.lab:443")
		if !slices.Equal(r.Lines, []string{"/etc/cove/ca.pem"}) {
			c.Errorf("the certificate convinces by %v, want the sandbox's own authority alone", r.Lines)
		}
	}
	for _, attempt := range []string{"keys /etc/cove", "keys /etc/ssl/certs", "keys /run", "keys /tmp", "keys /work",
		"keys /dev/shm"} {
		if r := one.try(c, attempt); r.Outcome == outcome.Succeeded {
			c.Errorf("HOLE: %s: %v", attempt, r.Lines)
		}
	}
	// The memory and files of everything in the sandbox, and what the host
	// shows of it, S1's row searches; here what is kept on the host.
	for _, dir := range c.suite.online.Dirs {
		eachFile(dir, func(path, content string) {
			if strings.Contains(content, "PRIVATE KEY") {
				c.Errorf("HOLE: a key is in %s", path)
			}
		})
	}
	c.remark("that a certificate of one sandbox convinces no other is TestALeafConvincesNoOtherSandbox's, the " +
		"constraints are TestConstraints'")
}
