// Package forge owns Cove's own requests to the API of a server with repositories: opening a pull request by GitHub's
// REST API.
package forge

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"unicode"

	"github.com/cove-sandbox/cove"
)

// maxAnswer bounds an answer, in bytes.
const maxAnswer = 1 << 20

// Pull is a pull request to open.
type Pull struct {
	Title string `json:"title"`
	Head  string `json:"head"` // the branch with the commits
	Base  string `json:"base"` // the target branch
	Body  string `json:"body,omitempty"`
	Draft bool   `json:"draft,omitempty"`
}

// Opened is an opened pull request.
type Opened struct {
	Number int    `json:"number"`
	URL    string `json:"html_url"`
}

// Open opens a pull request by a POST to the address of a repository's pull requests
// (https://HOST/repos/OWNER/REPO/pulls). Its errors contain the server's reason. Errors: Forbidden without a sufficient
// credential, Conflict when the pull request is impossible, Unavailable.
func Open(ctx context.Context, c *http.Client, address string, p Pull) (Opened, error) {
	body, err := json.Marshal(p)
	if err != nil {
		return Opened{}, cove.Errorf(cove.Internal, "write a pull request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return Opened{}, cove.Errorf(cove.InvalidArgument, "there is no address for pull requests: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/vnd.github+json")
	req.Header.Set("X-GitHub-Api-Version", "2022-11-28")
	req.Header.Set("User-Agent", "cove")
	once := *c
	// a redirect leads to another repository, under another name
	once.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	resp, err := once.Do(req)
	if err != nil {
		return Opened{}, cove.Errorf(cove.Unavailable, "%s does not answer: %w", req.URL.Host, err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return Opened{}, cove.Errorf(cove.Unavailable, "the answer of %s broke off: %w", req.URL.Host, err)
	}
	if resp.StatusCode != http.StatusCreated {
		return Opened{}, refused(req.URL.Host, resp.StatusCode, answer)
	}
	var opened Opened
	if json.Unmarshal(answer, &opened) != nil || !strings.HasPrefix(opened.URL, "https://") ||
		opened.URL != clean(opened.URL) {
		return Opened{}, cove.Errorf(cove.Unavailable, "%s does not say which pull request it has opened", req.URL.Host)
	}
	return opened, nil
}

// refused returns the error of an unsuccessful answer.
func refused(host string, status int, answer []byte) error {
	why := cmp.Or(reason(answer), http.StatusText(status))
	code, hint := cove.Unavailable, ""
	switch status {
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound:
		code, hint = cove.Forbidden,
			`this machine's credential for it has to be one that may: see "gh auth status", or set GH_TOKEN`
	case http.StatusUnprocessableEntity, http.StatusConflict:
		code = cove.Conflict
	case http.StatusMovedPermanently, http.StatusPermanentRedirect, http.StatusTemporaryRedirect, http.StatusFound:
		code, why = cove.Conflict, "the repository has another name now"
	}
	err := cove.Errorf(code, "%s has not opened the pull request (%d): %s", host, status, why)
	if hint != "" {
		return err.WithHint("%s", hint)
	}
	return err
}

// reason returns an answer's message with those of its errors, or the first line of a text.
func reason(answer []byte) string {
	var said struct {
		Message string
		Errors  []struct{ Message string }
	}
	if json.Unmarshal(answer, &said) != nil {
		line, _, _ := strings.Cut(strings.TrimSpace(string(answer)), "\n")
		return clean(line)
	}
	all := []string{said.Message}
	for _, e := range said.Errors {
		if e.Message != "" {
			all = append(all, e.Message)
		}
	}
	return clean(strings.Join(all, ": "))
}

// clean returns foreign text that is safe for a terminal.
func clean(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
	const most = 500
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "")
	}
	return s
}
