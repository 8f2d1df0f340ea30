// Package smart owns git's protocol over HTTP (gitprotocol-http, -pack and -v2): which requests are git's, what a
// client wants, which refs a server shows, and how a push is refused so that git shows the reason. It is pure: streams
// in, streams out, with bounded memory for any input.
//
// It removes what it cannot judge (capabilities, refs) or refuses it (requests), so that a server executes only
// requests that were understood here.
package smart

import (
	"net/url"
	"slices"
	"strings"
)

// Kind is the purpose of a request.
type Kind int

const (
	Other       Kind = iota // not git's
	Advertise               // lists refs, or the server's capabilities: GET info/refs?service=…
	UploadPack              // refs and objects, to the client
	ReceivePack             // refs and objects, from the client
	Batch                   // locations of large files (LFS)
	LargeFile               // a large file itself, or locks
	Files                   // files of a repository by name (the dumb protocol), without protection by ref
	Odd                     // git's, in a form that no git client uses
)

// Service is an operation on a repository.
type Service string

const (
	Fetch Service = "git-upload-pack"
	Push  Service = "git-receive-pack"
)

// Request is a request, as far as its head shows.
type Request struct {
	Kind    Kind
	Service Service // of Advertise, UploadPack and ReceivePack
	Repo    string  // path of the repository as requested, with or without ".git"
}

// files are top-level names in a repository on disk.
var files = []string{"HEAD", "FETCH_HEAD", "ORIG_HEAD", "config", "config.worktree", "description", "packed-refs",
	"shallow", "index", "commondir", "gitdir"}

// directories are top-level directories in a repository on disk.
var directories = []string{"objects", "refs", "info", "hooks", "logs", "branches", "modules", "worktrees", "reftable"}

// Recognise returns the purpose of a request. path is canonical and encoded; query is the text after "?", and asked
// reports whether there is one.
func Recognise(method, path, query string, asked bool) Request {
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return Request{Kind: Odd}
	}
	r := recognise(method, decoded, query, asked)
	if r.Kind == Other {
		return r
	}
	end := decoded[len(r.Repo):]
	if !strings.HasSuffix(path, end) || strings.Contains(strings.ToLower(path), "%2f") { // encoded, which no client does
		return Request{Kind: Odd, Repo: r.Repo}
	}
	r.Repo = strings.TrimSuffix(path, end)
	return r
}

func recognise(method, path, query string, asked bool) Request {
	if repo, ok := strings.CutSuffix(path, "/info/refs"); ok {
		for _, s := range []Service{Fetch, Push} {
			if method == "GET" && query == "service="+string(s) {
				return Request{Advertise, s, repo}
			}
		}
		if asked || method != "GET" {
			return Request{Kind: Odd, Repo: repo}
		}
		return Request{Kind: Files, Repo: repo}
	}
	at := strings.LastIndexByte(path, '/')
	if at < 0 {
		return Request{}
	}
	repo, name := path[:at], path[at+1:]
	switch {
	case name == string(Fetch) && method == "POST" && !asked:
		return Request{UploadPack, Fetch, repo}
	case name == string(Push) && method == "POST" && !asked:
		return Request{ReceivePack, Push, repo}
	case strings.HasPrefix(strings.ToLower(name), "git-"):
		return Request{Kind: Odd, Repo: repo}
	}
	if repo, rest, ok := strings.Cut(path, "/info/lfs/"); ok {
		if rest == "objects/batch" && method == "POST" && !asked {
			return Request{Kind: Batch, Repo: repo}
		}
		return Request{Kind: LargeFile, Repo: repo}
	}
	return file(path)
}

// file recognises files of a repository: those below a name *.git, and otherwise possible ones.
func file(path string) Request {
	if repo, rest, ok := strings.Cut(path, ".git/"); ok && rest != "" {
		return Request{Kind: Files, Repo: repo + ".git"}
	}
	parts := strings.Split(path, "/")
	for i, part := range parts {
		last := i == len(parts)-1
		if i > 1 && (last && has(files, part) || !last && has(directories, part)) {
			return Request{Kind: Files, Repo: strings.Join(parts[:i], "/")}
		}
	}
	return Request{}
}

func has(list []string, s string) bool {
	return slices.ContainsFunc(list, func(x string) bool { return strings.EqualFold(x, s) })
}

// Version is a version of the protocol.
type Version int

// ParseVersion parses the header Git-Protocol. An unknown or repeated value means version 0, which every server
// supports. The forwarded request states the result (Version.Header), so that the server agrees.
func ParseVersion(header []string) Version {
	if len(header) != 1 {
		return 0
	}
	switch header[0] {
	case "version=1":
		return 1
	case "version=2":
		return 2
	}
	return 0
}

// Header returns the value of Git-Protocol, or "" for version 0.
func (v Version) Header() string {
	switch v {
	case 1:
		return "version=1"
	case 2:
		return "version=2"
	}
	return ""
}
