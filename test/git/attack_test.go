//go:build linux

package git

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove/internal/git/gittest"
	"github.com/cove-sandbox/cove/internal/git/pktline"
)

const zero = "0000000000000000000000000000000000000000"

// attack is a sandbox that may push to own and team/**, and what it knows.
type attack struct {
	t      *testing.T
	l      *lab
	web    *http.Client
	git    gittest.Git // a clone
	server *gittest.Repository

	main, own, hidden string // commits
	blob, tree        string // of the hidden one
	fresh, pack       string // a commit on own that the server has not, and its pack
}

// policyOfAttacks allows what most sandboxes may.
const policyOfAttacks = `- remote: REPO
  push: [own, "team/**"]
  protected: [team/frozen]
  max_pack_mb: 8
  secrets: [{name: deploy key, pattern: "DEPLOY-[0-9a-f]{8}"}]
`

// policyOfBombs has room for what is meant to be too much in another way.
const policyOfBombs = `- remote: REPO
  push: [own]
  max_pack_mb: 64
  secrets: [{name: deploy key, pattern: "DEPLOY-[0-9a-f]{8}"}]
`

func newAttack(t *testing.T, policy string) *attack {
	l := newLab(t, account)
	a := &attack{t: t, l: l, server: l.server.Create("repo.git")}
	l.server.Create("other.git").Branch("other", "main")
	a.main = a.server.Run("rev-parse", "main")
	a.own = a.server.Branch("own", "main")
	a.hidden = a.server.Branch("hidden", "main")
	a.server.Run("update-ref", "refs/pull/1/head", a.hidden)
	a.server.Run("update-ref", "refs/notes/commits", a.hidden)
	a.server.Run("tag", "v1", a.main)
	a.server.Run("config", "uploadpack.allowAnySHA1InWant", "true") // the most generous server
	a.server.Run("config", "receive.shallowUpdate", "true")
	a.server.Run("config", "receive.certNonceSeed", "seed")
	a.server.Run("config", "uploadpack.advertiseBundleURIs", "true")
	a.blob, a.tree = a.server.Run("rev-parse", a.hidden+":hidden"), a.server.Run("rev-parse", a.hidden+"^{tree}")
	git, c := l.client("attacker", l.policy(policy))
	a.web = gatewayClient(t, c)
	git.Run("clone", "-q", "-b", "own", l.remote("repo.git"), "a")
	a.git = git.In("a")
	a.fresh, a.pack = a.commit("work", "1\n")
	return a
}

// commit makes one on own with a file, and the pack that brings it.
func (a *attack) commit(name, content string) (id, pack string) {
	a.t.Helper()
	a.git.Run("checkout", "-q", "-f", "--detach", a.own)
	id = a.git.Commit(name, name, content)
	return id, a.packOf(id, a.own)
}

func (a *attack) packOf(id string, without ...string) string {
	a.t.Helper()
	return a.git.Pack(id+"\n^"+strings.Join(without, "\n^")+"\n", "--revs")
}

// answer is what came back, and whether something was refused.
type answer struct {
	status  int
	body    string
	refused bool
}

func (a *attack) send(method, path string, body io.Reader, header ...string) answer {
	a.t.Helper()
	r, err := http.NewRequestWithContext(a.t.Context(), method, a.l.remote("/")+strings.TrimPrefix(path, "/"), body)
	if err != nil {
		a.t.Fatal(err)
	}
	if strings.Contains(path, "%") { // as it stands
		r.URL.Opaque = "//" + r.URL.Host + strings.SplitN(path, "?", 2)[0]
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	res, err := a.web.Do(r)
	if err != nil {
		return answer{body: err.Error(), refused: true}
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	got := answer{status: res.StatusCode, body: string(data)}
	got.refused = err != nil || res.StatusCode != 200 || refusal.MatchString(got.body)
	return got
}

// refusal is a line with which a server refuses an update, or a want.
var refusal = regexp.MustCompile("[0-9a-f]{4}(ng |ERR )")

// lines writes pkt-lines: "~" is a flush, "|" a delimiter.
func lines(all ...string) string {
	var b bytes.Buffer
	w := pktline.NewWriter(&b)
	for _, l := range all {
		switch l {
		case "~":
			w.Flush()
		case "|":
			w.Delim()
		default:
			w.Data([]byte(l))
		}
	}
	return b.String()
}

const words = "\x00 report-status side-band-64k atomic"

// push sends commands as they stand.
func (a *attack) push(body string, header ...string) answer {
	if len(header) == 0 {
		header = []string{"Content-Type", "application/x-git-receive-pack-request"}
	}
	return a.send("POST", "/repo.git/git-receive-pack", strings.NewReader(body), header...)
}

// to pushes the fresh commit to a ref.
func (a *attack) to(ref string) answer {
	return a.push(lines(zero+" "+a.fresh+" "+ref+words, "~") + a.pack)
}

// update pushes a commit to own.
func (a *attack) update(id, pack string) answer {
	return a.push(lines(a.own+" "+id+" refs/heads/own"+words, "~") + pack)
}

// fetch sends a request for objects in a version of the protocol.
func (a *attack) fetch(version, body string) answer {
	header := []string{"Content-Type", "application/x-git-upload-pack-request"}
	if version != "" {
		header = append(header, "Git-Protocol", version)
	}
	return a.send("POST", "/repo.git/git-upload-pack", strings.NewReader(body), header...)
}

func (a *attack) want0(id string) answer {
	return a.fetch("", lines("want "+id+" side-band-64k\n", "~", "done\n"))
}

func (a *attack) want2(arguments ...string) answer {
	return a.fetch("version=2", lines(append(append([]string{"command=fetch", "|"}, arguments...), "done", "~")...))
}

func (a *attack) get(path string, header ...string) answer {
	return a.send("GET", path, nil, header...)
}

// tree is a commit on own whose tree has one more entry, as it stands, and its pack.
func (a *attack) entry(mode, name, id string) (commit, pack string) {
	a.t.Helper()
	tree := a.git.RunWith(a.git.Run("ls-tree", a.own)+fmt.Sprintf("\n%s %s\t%s\n", mode, id, name), "mktree", "--missing")
	commit = a.git.Run("commit-tree", "-p", a.own, "-m", "entry", tree)
	return commit, a.git.Pack(commit + "\n" + tree + "\n")
}

// TestAttacks: what a sandbox could ask a server for that it must not have (PROBES G1, G2, G3, G4, G8): it is refused,
// nothing changes, and nothing hidden comes back. What must be allowed is among it.
func TestAttacks(t *testing.T) {
	a := newAttack(t, policyOfAttacks)
	type try struct {
		allowed bool
		do      func() answer
	}
	all := map[string]try{}
	refuse := func(name string, do func() answer) {
		if _, twice := all[name]; twice {
			t.Fatalf("%s is there twice", name)
		}
		all[name] = try{false, do}
	}
	for name, ref := range map[string]string{
		"main": "refs/heads/main", "another's branch": "refs/heads/hidden", "a new branch": "refs/heads/new",
		"a traversal": "refs/heads/team/../main",
		"a tag":       "refs/tags/v2", "an existing tag": "refs/tags/v1", "a note": "refs/notes/commits",
		"a replacement":  "refs/replace/" + a.main,
		"a pull request": "refs/pull/1/head", "a merge request": "refs/merge-requests/1/head", "a review": "refs/for/main",
		"a draft":  "refs/drafts/main",
		"a change": "refs/changes/01/1/1", "configuration": "refs/meta/config", "HEAD": "HEAD",
		"a remote": "refs/remotes/origin/main", "the stash": "refs/stash",
		"a case variant": "refs/heads/OWN", "a case variant of heads": "refs/Heads/own", "below own": "refs/heads/own/x",
		"above an area":  "refs/heads/team",
		"beside an area": "refs/heads/teams/x", "4 KB": "refs/heads/team/" + strings.Repeat("x", 4096),
		"a newline": "refs/heads/team/x\nrefs/heads/main",
		"ANSI":      "refs/heads/team/\x1b[2J", "a lock": "refs/heads/team/x.lock", "a reflog": "refs/heads/team/x@{1}",
		"hidden by a dot": "refs/heads/team/.x",
		"two slashes":     "refs/heads/team//x", "an option": "refs/heads/team/-x", "a space": "refs/heads/team/x y",
		"a pattern": "refs/heads/team/*",
		"not UTF-8": "refs/heads/team/\xff", "bidi": "refs/heads/team/\u202ex", "protected": "refs/heads/team/frozen",
		"no refs": "team/x", "pseudo": "FETCH_HEAD",
		"a colon": "refs/heads/team/x:refs/heads/main", "a backslash": `refs/heads/team\x`,
		"well known, in its area": "refs/heads/release/1",
	} {
		refuse("push to "+name, func() answer { return a.to(ref) })
	}
	all["push to own area"] = try{true, func() answer { return a.to("refs/heads/team/x") }}
	refuse("push to a name with NUL", func() answer {
		return a.push(lines(zero+" "+a.fresh+" refs/heads/team/y"+words,
			zero+" "+a.fresh+" refs/heads/team/x\x00refs/heads/main", "~") + a.pack)
	})

	refuse("delete own", func() answer { return a.push(lines(a.own+" "+zero+" refs/heads/own"+words, "~")) })
	refuse("delete main", func() answer { return a.push(lines(a.main+" "+zero+" refs/heads/main"+words, "~")) })
	refuse("delete and create", func() answer {
		return a.push(lines(a.own+" "+zero+" refs/heads/own"+words, zero+" "+a.fresh+" refs/heads/own", "~") + a.pack)
	})
	refuse("one of two", func() answer {
		return a.push(lines(a.own+" "+a.fresh+" refs/heads/own"+words, a.main+" "+a.fresh+" refs/heads/main", "~") + a.pack)
	})
	refuse("one of two, without atomic", func() answer {
		return a.push(lines(a.own+" "+a.fresh+" refs/heads/own\x00report-status",
			a.main+" "+a.fresh+" refs/heads/main", "~") + a.pack)
	})
	refuse("force", func() answer {
		a.git.Run("checkout", "-q", "-f", "--detach", a.main)
		id := a.git.Commit("aside", "aside", "1")
		return a.update(id, a.packOf(id, a.main))
	})
	refuse("back", func() answer { return a.update(a.main, a.git.Pack("")) })
	refuse("a certificate", func() answer {
		return a.push(lines("push-cert\x00report-status push-cert=x", "certificate version 0.1\n", "pusher x\n", "\n",
			a.own+" "+a.fresh+" refs/heads/main\n", "push-cert-end\n", "~") + a.pack)
	})
	refuse("options", func() answer {
		return a.push(lines(a.own+" "+a.fresh+" refs/heads/own\x00report-status push-options", "~", "x\ny", "~") + a.pack)
	})
	refuse("history cut off", func() answer {
		return a.push(lines("shallow "+a.fresh, a.own+" "+a.fresh+" refs/heads/own"+words, "~") + a.pack)
	})
	refuse("an unknown capability", func() answer {
		return a.push(lines(a.own+" "+a.fresh+" refs/heads/own\x00report-status object-format=sha1 proc-receive",
			"~") + a.pack)
	})
	refuse("commands after the pack", func() answer {
		return a.push(lines(a.own+" "+a.fresh+" refs/heads/own"+words,
			"~") + a.pack + lines(a.main+" "+a.fresh+" refs/heads/main"+words, "~"))
	})
	refuse("another push behind an empty one", func() answer {
		return a.push("0000" + lines(a.main+" "+a.fresh+" refs/heads/main"+words, "~") + a.pack)
	})
	refuse("a pack for a deletion",
		func() answer { return a.push(lines(a.own+" "+zero+" refs/heads/own"+words, "~") + a.pack) })
	refuse("no pack", func() answer { return a.update(a.fresh, "") })
	refuse("another kind of body", func() answer {
		return a.push(lines(a.own+" "+a.fresh+" refs/heads/own"+words, "~")+a.pack, "Content-Type", "text/plain")
	})
	refuse("two kinds of body", func() answer {
		return a.push(lines(a.own+" "+a.fresh+" refs/heads/own"+words, "~")+a.pack, "Content-Type",
			"application/x-git-receive-pack-request", "Content-Type", "x/y")
	})
	refuse("a coding nobody reads", func() answer {
		return a.push(lines(a.own+" "+a.fresh+" refs/heads/own"+words, "~")+a.pack, "Content-Type",
			"application/x-git-receive-pack-request", "Content-Encoding", "br")
	})
	refuse("a bomb", func() answer {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		io.WriteString(z, lines(a.own+" "+a.fresh+" refs/heads/own"+words, "~")+"PACK")
		z.Write(make([]byte, 64<<20))
		z.Close()
		return a.push(b.String(), "Content-Type", "application/x-git-receive-pack-request", "Content-Encoding", "gzip")
	})
	refuse("too large", func() answer {
		id, pack := a.commit("large", large(9<<20))
		return a.update(id, pack)
	})

	for name, path := range map[string]string{"a workflow": ".github/workflows/ci.yml",
		"a workflow, in capitals": ".GitHub/Workflows/ci.yml", "an action": "x/action.yml",
		"GitLab's pipeline": ".gitlab-ci.yml", "owners": "docs/CODEOWNERS", "hooks": ".husky/pre-commit",
		"a Jenkinsfile": "Jenkinsfile"} {
		refuse("change "+name, func() answer { return a.update(a.commit(path, "x\n")) })
	}
	refuse("change a workflow and change it back", func() answer {
		a.commit(".github/workflows/ci.yml", "x\n")
		a.git.Run("rm", "-q", ".github/workflows/ci.yml")
		id := a.git.Commit("back")
		return a.update(id, a.packOf(id, a.own))
	})
	refuse("a link to workflows", func() answer {
		return a.update(a.linked())
	})
	refuse("a secret", func() answer { return a.update(a.commit("conf", "key: DEPLOY-0123abcd\n")) })
	refuse("a hidden blob", func() answer { return a.update(a.entry("100644 blob", "stolen", a.blob)) })
	refuse("a hidden tree", func() answer { return a.update(a.entry("040000 tree", "stolen", a.tree)) })
	refuse("a hidden parent", func() answer {
		id := a.git.RunWith("tree "+a.git.Run("rev-parse", a.own+"^{tree}")+"\nparent "+a.own+"\nparent "+
			a.hidden+"\nauthor A <a@x> 1 +0000\ncommitter A <a@x> 1 +0000\n\nx\n",
			"hash-object", "-t", "commit", "-w", "--literally", "--stdin")
		return a.update(id, a.git.Pack(id+"\n"))
	})
	refuse("a hidden commit itself", func() answer {
		return a.push(lines(zero+" "+a.hidden+" refs/heads/team/stolen"+words, "~") + a.git.Pack(""))
	})
	refuse("a ref at a blob", func() answer {
		id := a.git.RunWith("x", "hash-object", "-w", "--stdin")
		return a.push(lines(zero+" "+id+" refs/heads/team/blob"+words, "~") + a.git.Pack(id+"\n"))
	})
	refuse("a thin pack", func() answer {
		a.commit("many", strings.Repeat("a line of many\n", 5000))
		first := a.git.Run("rev-parse", "HEAD")
		id := a.git.Commit("many", "many", strings.Repeat("a line of many\n", 5001))
		return a.update(id, a.git.Pack(id+"\n^"+first+"\n", "--revs", "--thin"))
	})
	refuse("half a pack", func() answer { return a.update(a.fresh, a.pack[:len(a.pack)/2]) })
	refuse("a pack with another checksum", func() answer { return a.update(a.fresh, a.pack[:len(a.pack)-1]+"x") })
	refuse("a pack that promises more",
		func() answer { return a.update(a.fresh, a.pack[:8]+"\x7f\xff\xff\xff"+a.pack[12:]) })
	refuse("a pack of another version", func() answer { return a.update(a.fresh, a.pack[:7]+"\x09"+a.pack[8:]) })
	for _, name := range []string{".git", ".GIT", "git~1", "..", ".git "} {
		refuse("an entry "+name, func() answer { return a.update(a.raw(name)) })
	}

	for version, want := range map[string]func(string) answer{"0": a.want0,
		"2": func(id string) answer { return a.want2("want " + id) }} {
		for name, id := range map[string]string{"a hidden commit": a.hidden, "a hidden tree": a.tree, "a hidden blob": a.blob,
			"what nobody has": strings.Repeat("1", 40)} {
			refuse("want "+name+" in version "+version, func() answer { return want(id) })
		}
		all["want main in version "+version] = try{true, func() answer { return want(a.main) }}
	}
	refuse("want a hidden commit in version 1",
		func() answer { return a.fetch("version=1", lines("want "+a.hidden+" side-band-64k\n", "~", "done\n")) })
	refuse("want a hidden commit after another", func() answer {
		return a.fetch("", lines("want "+a.main+" side-band-64k\n", "want "+a.hidden+"\n", "~", "done\n"))
	})
	refuse("want a hidden commit among haves", func() answer {
		return a.fetch("", lines("want "+a.main+" side-band-64k\n", "~", "have "+a.main+"\n",
			"want "+a.hidden+"\n", "done\n"))
	})
	refuse("want a hidden ref", func() answer {
		a.server.Run("config", "uploadpack.allowRefInWant", "true")
		return a.want2("want-ref refs/heads/hidden")
	})
	refuse("history without what is hidden",
		func() answer { return a.want2("want "+a.main, "deepen-not refs/heads/hidden") })
	refuse("a filter that is an object", func() answer { return a.want2("want "+a.main, "filter sparse:oid="+a.blob) })
	refuse("information about objects", func() answer {
		return a.fetch("version=2", lines("command=object-info", "|", "size", "oid "+a.blob, "~"))
	})
	refuse("where bundles are", func() answer { return a.fetch("version=2", lines("command=bundle-uri", "~")) })
	refuse("packs from elsewhere", func() answer { return a.want2("packfile-uris https", "want "+a.main) })
	refuse("two commands in one", func() answer {
		return a.fetch("version=2", lines("command=ls-refs", "~")+lines("command=fetch", "|", "want "+a.hidden, "done", "~"))
	})
	refuse("version 2 said as version 0",
		func() answer { return a.fetch("", lines("command=fetch", "|", "want "+a.hidden, "done", "~")) })
	refuse("two versions", func() answer {
		return a.fetch("version=1:version=2", lines("command=fetch", "|", "want "+a.hidden, "done", "~"))
	})
	refuse("a want, bombed", func() answer {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(bytes.Repeat([]byte("0032have "+a.main+"\n"), 1<<20))
		z.Close()
		return a.send("POST", "/repo.git/git-upload-pack", &b, "Content-Type", "application/x-git-upload-pack-request",
			"Content-Encoding", "gzip")
	})

	for name, path := range map[string]string{
		"HEAD": "/repo.git/HEAD", "configuration": "/repo.git/config", "packs": "/repo.git/objects/info/packs",
		"an object":  "/repo.git/objects/" + a.blob[:2] + "/" + a.blob[2:],
		"alternates": "/repo.git/objects/info/alternates", "HTTP alternates": "/repo.git/objects/info/http-alternates",
		"refs, dumb": "/repo.git/info/refs",
		"a ref":      "/repo.git/refs/heads/hidden", "packed refs": "/repo.git/packed-refs",
		"another repository": "/other.git/info/refs?service=git-upload-pack",
		"an archive":         "/repo.git/info/refs?service=git-upload-archive",
		"two services":       "/repo.git/info/refs?service=git-upload-pack&service=git-receive-pack",
		"an encoded service": "/repo.git/info/refs?service=git%2Dupload%2Dpack",
		"an encoded path":    "/repo.git/git%2Dupload%2Dpack",
		"an encoded slash":   "/repo.git%2Finfo/refs?service=git-upload-pack",
		"traversal":          "/repo.git/../other.git/info/refs?service=git-upload-pack",
		"encoded traversal":  "/repo.git/%2e%2e/other.git/info/refs?service=git-upload-pack",
		"an empty query":     "/repo.git/info/refs?", "a service in capitals": "/repo.git/info/refs?service=GIT-UPLOAD-PACK",
	} {
		refuse("read "+name, func() answer { return a.get(path) })
	}
	refuse("a push as GET", func() answer { return a.get("/repo.git/git-receive-pack") })
	refuse("a push with a query", func() answer {
		return a.send("POST", "/repo.git/git-receive-pack?x",
			strings.NewReader(lines(a.own+" "+a.fresh+" refs/heads/own"+words, "~")+a.pack), "Content-Type",
			"application/x-git-receive-pack-request")
	})
	refuse("an archive service", func() answer {
		return a.send("POST", "/repo.git/git-upload-archive",
			strings.NewReader("0000"))
	})
	refuse("an upload of a large file", func() answer {
		return a.send("POST", "/repo.git/info/lfs/objects/batch", strings.NewReader(`{"operation":"upload","objects":[]}`),
			"Content-Type", "application/vnd.git-lfs+json")
	})
	refuse("two operations on large files", func() answer {
		return a.send("POST", "/repo.git/info/lfs/objects/batch",
			strings.NewReader(`{"operation":"download","operation":"upload"}`), "Content-Type", "application/vnd.git-lfs+json")
	})
	refuse("a large file", func() answer {
		return a.send("PUT", "/repo.git/info/lfs/objects/"+strings.Repeat("0", 64)+"/3", strings.NewReader("abc"))
	})
	refuse("a lock", func() answer { return a.send("POST", "/repo.git/info/lfs/locks", strings.NewReader("{}")) })

	var attempts int
	before, other := a.server.Refs(), l(a, "other.git")
	for name, x := range all {
		if x.allowed || t.Failed() && a.server.Refs() != before {
			continue
		}
		attempts++
		t.Run(name, func(t *testing.T) {
			a.t = t
			got := x.do()
			if !got.refused || got.status == 0 {
				t.Errorf("it is allowed: %d %.500q", got.status, got.body)
			}
			if strings.Contains(got.body, "PACK\x00") || strings.Contains(got.body, "work of hidden") ||
				strings.Contains(got.body, password) {
				t.Errorf("it gives: %.500q", got.body)
			}
			if after := a.server.Refs(); after != before || l(a, "other.git") != other {
				t.Fatalf("the server has changed:\n%s", after)
			}
		})
	}
	a.t = t
	if attempts < 120 {
		t.Errorf("there are %d attempts", attempts)
	}
	t.Logf("%d attempts", attempts)
	for _, path := range []string{"/repo.git/info/refs?service=git-upload-pack",
		"/repo.git/info/refs?service=git-receive-pack"} {
		for _, version := range []string{"", "version=1", "version=2"} {
			if got := a.get(path, "Git-Protocol", version); got.refused || strings.Contains(got.body, a.hidden) ||
				strings.Contains(got.body, "hidden") || strings.Contains(got.body, "push-cert") {
				t.Errorf("%s %s: %+v", path, version, got)
			}
		}
	}
	if got := a.fetch("version=2", lines("command=ls-refs", "|", "peel", "symrefs", "~")); got.refused ||
		strings.Contains(got.body, a.hidden) || !strings.Contains(got.body, a.own) {
		t.Errorf("ls-refs: %+v", got)
	}
	for name, x := range all {
		if x.allowed {
			if got := x.do(); got.refused {
				t.Errorf("%s: %+v\n%s", name, got, a.l.log)
			}
		}
	}
	if got := a.update(a.fresh, a.pack); got.refused || !strings.Contains(a.server.Refs(), "refs/heads/own "+a.fresh) {
		t.Errorf("the push that all others are like: %+v", got)
	}
	a.server.Run("fsck", "--full", "--strict")
}

// l are the refs of another repository on the server.
func l(a *attack, of string) string {
	return gittest.NewGit(a.t, a.l.server.Root+"/"+of).Run("for-each-ref")
}

// linked is a commit with a link in the place of .github.
func (a *attack) linked() (id, pack string) {
	blob := a.git.RunWith("elsewhere", "hash-object", "-w", "--stdin")
	tree := a.git.RunWith(a.git.Run("ls-tree", a.own)+"\n120000 blob "+blob+"\t.github\n", "mktree")
	id = a.git.Run("commit-tree", "-p", a.own, "-m", "link", tree)
	return id, a.git.Pack(id + "\n" + tree + "\n" + blob + "\n")
}

// raw is a commit with a tree that git itself would not write.
func (a *attack) raw(name string) (id, pack string) {
	empty := a.git.RunWith("", "mktree")
	var binary []byte
	fmt.Sscanf(empty, "%x", &binary)
	tree := a.git.RunWith("40000 "+name+"\x00"+string(binary), "hash-object", "-t", "tree", "-w", "--literally", "--stdin")
	id = a.git.Run("commit-tree", "-p", a.own, "-m", "raw", tree)
	return id, a.git.Pack(strings.Join([]string{id, tree, empty}, "\n") + "\n")
}
