package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
)

// httpProgram gets URLs with Go's own client: by the environment, and as one that knows of no proxy.
func httpProgram(ctx context.Context, urls []string) error {
	for _, proxied := range []bool{true, false} {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		if !proxied {
			transport.Proxy = nil
		}
		client := &http.Client{Transport: transport}
		for _, url := range urls {
			r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
			if err != nil {
				return err
			}
			res, err := client.Do(r)
			if err != nil {
				fmt.Println("failed:", err)
				continue
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			if err != nil {
				return err
			}
			fmt.Printf("proxied %v: %s %d %q\n", proxied, res.Proto, res.StatusCode, body)
		}
	}
	return nil
}
