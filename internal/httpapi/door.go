package httpapi

import (
	"context"
	"net"
	"slices"
	"sync"
)

// door describes how a connection came in; it is a property of the listener, so no header can change it.
type door int

const (
	fromNetwork  door = iota // anywhere
	fromLoopback             // this machine: any user, and any web page in a browser
	fromOwner                // a socket that only the owner can open, or this process
)

// origin is a listener that knows its door.
type origin struct {
	net.Listener
	door door
}

type doorKey struct{}

func baseContext(ln net.Listener) context.Context {
	d := fromNetwork
	if o, ok := ln.(origin); ok {
		d = o.door
	}
	return context.WithValue(context.Background(), doorKey{}, d)
}

func doorOf(ctx context.Context) door {
	d, _ := ctx.Value(doorKey{}).(door) // absent: the strictest
	return d
}

func network(a net.Addr) door {
	if isLoopback(a) {
		return fromLoopback
	}
	return fromNetwork
}

func isLoopback(a net.Addr) bool {
	tcp, ok := a.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// addresses holds the addresses of the network listeners that are served now.
type addresses struct {
	mu   sync.Mutex
	open []string // guarded by mu
}

func (a *addresses) add(l net.Addr, secure bool) (remove func()) {
	address := "http://" + l.String()
	if secure {
		address = "https://" + l.String()
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.open = append(a.open, address)
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if i := slices.Index(a.open, address); i >= 0 {
			a.open = slices.Delete(a.open, i, i+1)
		}
	}
}

func (a *addresses) all() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.open)
}
