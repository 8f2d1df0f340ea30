package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/coder/websocket"
)

// webSocketProgram talks to a server that sends messages back, pings it, and asks it to close with a code; then it
// waits on the second URL until somebody ends the connection.
func webSocketProgram(ctx context.Context, urls []string) error {
	socket, _, err := websocket.Dial(ctx, urls[0], nil)
	if err != nil {
		return err
	}
	defer socket.CloseNow()
	socket.SetReadLimit(1 << 20)
	for _, message := range [][]byte{[]byte("hello"), bytes.Repeat([]byte{0xff}, 300<<10)} {
		if err := socket.Write(ctx, websocket.MessageBinary, message); err != nil {
			return err
		}
		kind, back, err := socket.Read(ctx)
		if err != nil {
			return err
		}
		fmt.Println(kind, len(back), bytes.Equal(back, message))
	}
	alive, stop := context.WithCancel(ctx)
	go func() { // a pong is seen by whoever reads
		defer stop()
		_, _, err := socket.Read(ctx)
		fmt.Println("closed with", websocket.CloseStatus(err))
	}()
	if err := socket.Ping(alive); err != nil {
		return err
	}
	fmt.Println("pong")
	if err := socket.Write(ctx, websocket.MessageText, []byte("close 4321")); err != nil {
		return err
	}
	<-alive.Done()

	if len(urls) < 2 {
		return nil
	}
	lasting, _, err := websocket.Dial(ctx, urls[1], nil)
	if err != nil {
		return err
	}
	defer lasting.CloseNow()
	fmt.Println("open")
	_, _, err = lasting.Read(ctx)
	if err == nil {
		return errors.New("a message that nobody sent")
	}
	fmt.Println("cut", websocket.CloseStatus(err))
	_, _, err = websocket.Dial(ctx, urls[1], nil)
	fmt.Println("again:", err)
	return nil
}
