package sandbox

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"io"
	"net"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/crypto/ssh"
	"golang.org/x/crypto/ssh/agent"
)

// TestLentAgent: who is lent an agent sees keys and gets signatures, and changes nothing.
func TestLentAgent(t *testing.T) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	keys := agent.NewKeyring()
	if err := keys.Add(agent.AddedKey{PrivateKey: key, Comment: "mine"}); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	listen := func(name string) (net.Listener, string) {
		path := filepath.Join(dir, name)
		ln, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		return ln, path
	}
	var serving sync.WaitGroup
	host, hostPath := listen("host")
	serving.Go(func() {
		for {
			c, err := host.Accept()
			if err != nil {
				return
			}
			serving.Go(func() { agent.ServeAgent(keys, c); c.Close() })
		}
	})
	inside, insidePath := listen("inside")
	ctx, cancel := context.WithCancel(t.Context())
	serving.Go(func() { lendAgent(ctx, inside, hostPath) })
	defer serving.Wait()
	defer host.Close()
	defer cancel()

	conn, err := net.Dial("unix", insidePath)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	lent := agent.NewClient(conn)
	listed, err := lent.List()
	if err != nil || len(listed) != 1 || listed[0].Comment != "mine" {
		t.Fatalf("listed are %v, %v", listed, err)
	}
	data := []byte("sign this")
	signature, err := lent.Sign(listed[0], data)
	if err != nil {
		t.Fatal(err)
	}
	public, err := ssh.ParsePublicKey(listed[0].Blob)
	if err != nil {
		t.Fatal(err)
	}
	if err := public.Verify(data, signature); err != nil {
		t.Error(err)
	}
	_, other, _ := ed25519.GenerateKey(rand.Reader)
	for doing, err := range map[string]error{
		"adding a key": lent.Add(agent.AddedKey{PrivateKey: other}),
		"removing it":  lent.Remove(listed[0]),
		"removing all": lent.RemoveAll(),
		"locking it":   lent.Lock([]byte("x")),
		"unlocking it": lent.Unlock([]byte("x")),
		"an extension": func() error { _, err := lent.Extension("session-bind@openssh.com", nil); return err }(),
		"another's key": func() error {
			s, _ := ssh.NewSignerFromKey(other)
			_, err := lent.Sign(s.PublicKey(), data)
			return err
		}(),
	} {
		if err == nil {
			t.Errorf("%s is possible", doing)
		}
	}
	for what, raw := range map[string]string{"a message without a type": "\x00\x00\x00\x00",
		"one that is too large": "\x00\x10\x00\x00\x0b"} {
		c, err := net.Dial("unix", insidePath)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, raw)
		if n, err := c.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Errorf("%s is answered with %d bytes, %v", what, n, err)
		}
		c.Close()
	}
	after, err := keys.List()
	if err != nil || len(after) != 1 || !bytes.Equal(after[0].Blob, listed[0].Blob) {
		t.Errorf("then there are %v, %v", after, err)
	}
}
