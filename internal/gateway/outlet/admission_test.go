//go:build linux

package outlet

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"testing"
)

// TestAdmission: nobody gets to the proxy of the machine's git without its
// password, and who has it loses nothing of what was said.
func TestAdmission(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	a := newAdmission(ln, "git:secret")
	said := make(chan string, 10)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := a.Accept()
			if err != nil {
				return
			}
			text, _ := io.ReadAll(c)
			said <- string(text)
			c.Close()
		}
	}()
	const head = "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n"
	for name, line := range map[string]string{
		"none":      "",
		"wrong":     "Proxy-Authorization: Basic Z2l0Ondyb25n\r\n",
		"no scheme": "Proxy-Authorization: git:secret\r\n",
		"elsewhere": "Authorization: Basic Z2l0OnNlY3JldA==\r\n",
		"two":       "Proxy-Authorization: Basic Z2l0Ondyb25n\r\nProxy-Authorization: Basic Z2l0OnNlY3JldA==\r\n",
		"too long":  "",
	} {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if name == "too long" {
			io.WriteString(c, head+"X: "+string(make([]byte, maxAdmission)))
		} else {
			io.WriteString(c, head+line+"\r\n")
		}
		answer, err := http.ReadResponse(bufio.NewReader(c), nil)
		if name != "too long" && (err != nil || answer.StatusCode != http.StatusProxyAuthRequired) {
			t.Errorf("%s: %+v, %v", name, answer, err)
		}
		if name == "too long" && err == nil {
			t.Errorf("%s: %+v", name, answer)
		}
		c.Close()
	}
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	whole := head + "proxy-authorization: Basic Z2l0OnNlY3JldA==\r\n\r\nand more"
	io.WriteString(c, whole)
	c.(*net.TCPConn).CloseWrite()
	if got := <-said; got != whole {
		t.Errorf("the proxy hears %q", got)
	}
	c.Close()
	waiting, err := net.Dial("tcp", ln.Addr().String()) // says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer waiting.Close()
	a.Close()
	<-ended
	if len(said) > 0 {
		t.Errorf("the proxy hears %q too", <-said)
	}
}
