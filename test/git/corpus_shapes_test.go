//go:build linux

package git

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/cove-sandbox/cove/internal/git/gittest"
)

// first commits a README.
func first(git gittest.Git) { git.Commit("first", "README", "first\n") }

// link makes a symbolic link.
func link(git gittest.Git, name, target string) {
	sure(os.MkdirAll(filepath.Dir(filepath.Join(git.Dir, name)), 0o755))
	sure(os.Symlink(target, filepath.Join(git.Dir, name)))
}

func sure(err error) {
	if err != nil {
		panic(err) // of a directory of the test's own
	}
}

// files commits so many files at once, in directories of 500.
func files(git gittest.Git, count int) {
	var b strings.Builder
	b.WriteString("commit refs/heads/main\ncommitter A <a@git.test> 1 +0000\ndata 5\nfiles\n")
	for i := range count {
		text := fmt.Sprintf("file %d\n", i)
		fmt.Fprintf(&b, "M 644 inline d%d/f%d\ndata %d\n%s\n", i/500, i, len(text), text)
	}
	b.WriteString("M 644 inline README\ndata 6\nfirst\n\n")
	git.RunWith(b.String(), "fast-import", "--quiet")
	git.Run("reset", "-q", "--hard")
}

// history commits so many bytes that do not compress, 8 MiB a commit, each in place of the one before.
func history(git gittest.Git, size int) {
	first(git)
	cmd := exec.Command("git", "fast-import", "--quiet")
	cmd.Dir, cmd.Env = git.Dir, git.Env
	in, err := cmd.StdinPipe()
	sure(err)
	sure(cmd.Start())
	const each = 8 << 20
	for i := range size / each {
		from := ""
		if i == 0 {
			from = "from refs/heads/main^0\n"
		}
		fmt.Fprintf(in, "commit refs/heads/main\ncommitter A <a@git.test> %d +0000\ndata 1\nx\n%s", i+1, from)
		fmt.Fprintf(in, "M 644 inline large\ndata %d\n%s\n", each, large(each, byte(i), byte(i>>8)))
	}
	sure(in.Close())
	sure(cmd.Wait())
	git.Run("reset", "-q", "--hard")
}

// shapes are the repositories of TestCorpus.
func shapes() []shape {
	type g = gittest.Git
	return []shape{
		{name: "plain", make: first},
		{name: "attributes", make: func(git g) {
			git.Commit("attributes", "README", "first\n", ".gitattributes", "[attr]none -diff\n* text=auto\n"+
				"*.bat eol=crlf\n*.sh eol=lf\n*.bin filter=lfs diff=lfs merge=lfs -text\nsecret/** export-ignore\n*.id ident\n*.c diff=cpp\n"+
				"*.u16 text working-tree-encoding=UTF-16LE eol=crlf\n", "a.bat", "echo a\r\n", "a.sh", "echo a\n",
				"logo.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:"+strings.Repeat("0", 64)+"\nsize 1\n",
				"secret/x", "x\n", "v.id", "$Id$\n", "a.u16", "a\x00\r\x00\n\x00",
				"below/.gitattributes", "*.txt -text\n*.dat filter=none\n", "below/a.txt", "a\r\nb\n",
				"below/a.dat", "data\n")
		}, edit: usual + `; printf 'echo b\r\n' >>a.bat; printf 'b\r\n' >>below/a.txt; printf 'b\0\r\0\n\0' >>a.u16
echo more >>v.id; echo more >>below/a.dat`},
		{name: "CRLF", make: func(git g) {
			git.Commit("lines", "README", "first\r\nsecond\r\n", "mixed", "a\r\nb\nc\r\n", "unix", "a\nb\n")
		}, edit: `printf 'third\r\n' >>README; printf 'd\n' >>mixed; printf 'c\r\n' >>unix`},
		{name: "symbolic links", make: func(git g) {
			git.Write("dir/file", "1\n")
			link(git, "to-file", "dir/file")
			link(git, "to-dir", "dir")
			link(git, "dir/up", "../README")
			link(git, "dangling", "nowhere")
			link(git, "absolute", "/etc/hostname")
			first(git)
		}, edit: usual + "; ln -s dir/up new-link; rm to-dir; ln -s docs to-dir; rm dangling"},
		{name: "names", make: func(git g) {
			git.Commit("names", "README", "first\n", "Grüße/Übung.txt", "1\n", "e\u0301-nfd", "1\n", "é-nfc", "1\n",
				"日本語/ファイル", "1\n", "with space/a b", "1\n", "quote\"d", "1\n", "back`tick$", "1\n", "-dash", "1\n",
				"readme", "folds\n", "Case/a", "1\n", "case/A", "1\n", "star*?[x]", "1\n", "emoji-😀", "1\n")
		}, edit: usual + `; echo 2 >>'Grüße/Übung.txt'; mv readme read; echo 2 >>case/A
echo ü >'neu ü'; echo 2 >>'star*?[x]'`},
		{name: "submodules", make: func(git g) {
			lib := git.In("../../lib-of-submodules")
			sure(os.MkdirAll(lib.Dir, 0o755))
			lib.Run("init", "-q", "-b", "main")
			first(lib)
			first(git)
			git.Run("submodule", "--quiet", "add", lib.Dir, "vendor/lib")
			git.Run("config", "-f", ".gitmodules", "submodule.vendor/lib.url", "../lib.git")
			git.Run("add", "-A")
			git.Run("commit", "-q", "-m", "submodule")
		}},
		{name: "20000 files", make: func(git g) { files(git, 20_000) }, edit: usual + "; echo 1 >>d3/f1501; rm -r d4"},
		{name: "200000 files", long: true, make: func(git g) { files(git, 200_000) }},
		{name: "1 GiB of history", long: true, make: func(git g) { history(git, 1<<30) }},
		{name: "octopus", make: func(git g) {
			first(git)
			heads := []string{"merge", "-q", "-m", "octopus"}
			for i := range 5 {
				head := fmt.Sprintf("arm-%d", i)
				git.Run("checkout", "-q", "-b", head, "main")
				git.Commit(head, head, "1\n")
				heads = append(heads, head)
			}
			git.Run("checkout", "-q", "main")
			git.Run(heads...)
		}},
		{name: "tags", make: func(git g) {
			first(git)
			id := git.Run("rev-parse", "HEAD")
			var light, full strings.Builder
			for i := range 5000 {
				fmt.Fprintf(&light, "create refs/tags/light-%d %s\n", i, id)
				fmt.Fprintf(&full, "tag full-%d\nfrom %s\ntagger A <a@git.test> 1 +0000\ndata 1\nx\n", i, id)
			}
			git.RunWith(light.String(), "update-ref", "--stdin")
			git.RunWith(full.String(), "fast-import", "--quiet")
		}},
		{name: "shallow", make: func(git g) {
			first(git)
			for i := range 5 {
				git.Commit(fmt.Sprint(i), "file", fmt.Sprint(i))
			}
		}, flags: []string{"--depth", "2"}, clone: []string{"--depth=2"},
			place: func(c *corpus, git g) g { return c.cloned(git, "--depth=2") }},
		{name: "partial", folder: true, make: func(git g) {
			for i := range 5 {
				git.Commit(fmt.Sprint(i), "README", "first\n", "file", fmt.Sprint(i))
			}
		}, place: func(c *corpus, git g) g { return ahead(c.cloned(git, "--filter=blob:none")) },
			edit: usual + "; git log -p file | grep -q '^+0'; git show HEAD~3:file"},
		{name: "partial without trees", folder: true, make: func(git g) {
			for i := range 5 {
				git.Commit(fmt.Sprint(i), "README", "first\n", "dir/file", fmt.Sprint(i))
			}
		}, place: func(c *corpus, git g) g {
			git = c.cloned(git, "--filter=tree:0", "--sparse")
			git.Run("sparse-checkout", "set", "docs")
			git.Run("checkout", "-q", "-b", "feature")
			return ahead(git)
		}, edit: usual + "; git log -p dir | grep -q '^+0'; git show HEAD~3:dir/file >moved"},
		{name: "replaced refs", make: func(git g) {
			first(git)
			old := git.Commit("second", "file", "2\n")
			git.Commit("third", "file", "3\n")
			git.Run("checkout", "-q", "--detach", old)
			git.Run("commit", "-q", "--amend", "-m", "instead")
			git.Run("replace", old, "HEAD")
			git.Run("checkout", "-q", "main")
		}},
		{name: "notes", make: func(git g) {
			first(git)
			git.Run("notes", "add", "-m", "a note")
			git.Run("notes", "--ref=review", "add", "-m", "another")
		}},
		{name: "linked worktree", folder: true, make: first, place: func(c *corpus, git g) g {
			git.Run("worktree", "add", "-q", "-b", "feature", "../linked-place")
			git = git.In("../linked-place")
			git.Commit("feature", "feature", "1\n")
			return git
		}},
		{name: "empty"},
		{name: "detached", folder: true, make: func(git g) {
			first(git)
			git.Commit("second", "file", "2\n")
		}, place: func(_ *corpus, git g) g { git.Run("checkout", "-q", "--detach", "HEAD~"); return git }},
		{name: "unborn branch", folder: true, make: first, place: func(_ *corpus, git g) g {
			git.Run("checkout", "-q", "--orphan", "next")
			return git
		}},
		{name: "SHA-256", init: []string{"--object-format=sha256"}, make: first},
		{name: "SHA-256 beside SHA-1", folder: true, init: []string{"--object-format=sha256"}, make: first,
			place: func(c *corpus, git g) g {
				c.server.Create("owner/older.git")
				git.Run("remote", "set-url", "origin", c.remote("owner/older.git"))
				return git
			}, refused: "has SHA-1 ids"},
		{name: "several remotes", folder: true, make: first, place: func(c *corpus, git g) g {
			git.Run("remote", "add", "upstream", "https://git.test/up/stream.git")
			git.Run("remote", "add", "backup", c.path("backup.git"))
			return git
		}},
		{name: "a path as remote", folder: true, local: true, make: first, place: func(c *corpus, git g) g {
			git.Run("remote", "set-url", "origin", filepath.Join(c.server.Root, "owner"))
			return git
		}},
		{name: "monorepo", make: func(git g) {
			git.Commit("monorepo", "README", "first\n", "apps/a/x", "1\n", "apps/b/x", "1\n", "libs/c/x", "1\n", "docs/x", "1\n")
		}, flags: []string{"--sparse", "docs", "--sparse", "apps/a"}, sparse: []string{"docs", "apps/a"},
			place: func(_ *corpus, git g) g { git.Run("sparse-checkout", "set", "docs", "apps/a"); return git }},
		{name: "signed commits", make: func(git g) {
			key := filepath.Join(git.Dir, "..", "signing-key")
			sure(exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).Run())
			public, err := os.ReadFile(key + ".pub")
			sure(err)
			git.Commit("first", "README", "first\n", "signers", "c@git.test "+string(public))
			git.Write("file", "1\n")
			git.Run("add", "-A")
			git.Run("-c", "gpg.format=ssh", "-c", "user.signingKey="+key, "commit", "-q", "-S", "-m", "signed")
			git.Run("-c", "gpg.format=ssh", "-c", "user.signingKey="+key, "tag", "-s", "-m", "signed", "v1")
		}, check: `signed="git -c gpg.ssh.allowedSignersFile=signers"
$signed log --show-signature --format='%G? %GS' v1 2>&1; $signed verify-tag v1 2>&1; $signed verify-commit v1^0 2>&1`},
		{name: "borrowed objects", folder: true, make: first,
			place: func(c *corpus, git g) g { return ahead(c.cloned(git, "--shared")) }},
		{name: "referenced objects", folder: true, make: first, place: func(c *corpus, git g) g {
			return ahead(c.cloned(git, "--reference="+git.Dir))
		}},
		{name: "large files", make: func(git g) {
			git.Commit("large files", ".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n", "README", "first\n",
				"logo.bin", pointer("logo\n"), "other.bin", pointer("other\n"))
		}, place: func(c *corpus, git g) g {
			// A person's own filter makes pointers of contents and contents of pointers. Cove runs none.
			store := filepath.Join(c.dir, "large")
			sure(os.MkdirAll(store, 0o755))
			for _, content := range []string{"logo\n", "other\n"} {
				sure(os.WriteFile(filepath.Join(store, fmt.Sprintf("%x", sha256.Sum256([]byte(content)))), []byte(content), 0o644))
			}
			mine := `[ "$PLAIN" ] || touch ` + c.path("ran") + "\n"
			clean := c.script("clean.sh", mine+`f=$(mktemp); cat >"$f"; case $(head -c 7 "$f") in version) cat "$f";; *)
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n' `+
				`"$(sha256sum <"$f" | cut -c-64)" "$(wc -c <"$f")";; esac`)
			smudge := c.script("smudge.sh", mine+`cat "`+store+`/$(sed -n 's/^oid sha256://p')"`)
			git.Run("config", "filter.lfs.clean", clean)
			git.Run("config", "filter.lfs.smudge", smudge)
			git.Run("config", "filter.lfs.required", "true")
			sure(os.Remove(filepath.Join(git.Dir, "logo.bin")))
			sure(os.Remove(filepath.Join(git.Dir, "other.bin")))
			git.Run("checkout", "-q", "--", ".")
			return git
		}, check: "cat logo.bin other.bin"},
		{name: "names that are no text", make: func(git g) {
			git.Commit("names", "README", "first\n", "caf\xe9.txt", "1\n", "\xff\xfe/\x80", "1\n", "tab\there", "1\n",
				"new\nline", "1\n", "quote\"and'\\x", "1\n", "escape\x1b[31m", "1\n")
		}, edit: `echo 2 >>"$(printf 'caf\351.txt')"; echo 1 >"$(printf 'new\377')"; echo 2 >>"quote\"and'\\x"`},
		{name: "long paths", make: func(git g) {
			deep := strings.Repeat(strings.Repeat("d", 250)+"/", 15)
			git.Commit("long", "README", "first\n", strings.Repeat("n", 255), "1\n", "docs/x", "1\n")
			git.RunWith("commit refs/heads/main\ncommitter A <a@git.test> 1 +0000\ndata 4\ndeep\nfrom refs/heads/main^0\n"+
				"M 644 inline "+deep+"f\ndata 2\n1\n\n", "fast-import", "--quiet")
			git.Run("reset", "-q", "--hard")
		}, edit: usual + "; d=$(printf '%250s' | tr ' ' d); for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do cd $d; done; " +
			"echo 2 >>f; cd - >/dev/null; cd \"$(git rev-parse --show-toplevel)\""},
		{name: "another default branch", branch: "trunk", make: first},
		{name: "a tag and a branch of one name", make: func(git g) {
			first(git)
			for _, tag := range []string{"main", "own", "folder", "issue-7-mend-it", "heads/main"} {
				git.Run("tag", tag)
			}
			git.Commit("second", "file", "2\n")
		}},
		{name: "line ends of the person", folder: true, make: func(git g) {
			git.Commit("lines", "README", "first\n", "unix", "a\nb\n", "other", "a\n")
		}, place: func(_ *corpus, git g) g {
			git.Run("config", "core.autocrlf", "true")
			sure(os.Remove(filepath.Join(git.Dir, "unix")))
			git.Run("checkout", "-q", "--", ".")
			return git
		}, edit: "echo edited >>README; echo c >>other"},
		{name: "another owner", folder: true, make: first, place: func(_ *corpus, git g) g {
			sure(exec.Command("chown", "-R", "12345:12345", git.Dir).Run())
			return git
		}},
	}
}

// pointer is what git has of a large file (LFS).
func pointer(content string) string {
	return fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%x\nsize %d\n",
		sha256.Sum256([]byte(content)), len(content))
}

// ahead adds a commit that only the person has.
func ahead(git gittest.Git) gittest.Git {
	git.Commit("ahead", "ahead", "1\n")
	return git
}

// cloned is a clone of a repository with these flags, which has the same origin.
func (c *corpus) cloned(git gittest.Git, flags ...string) gittest.Git {
	from, to := c.server.URL("owner/"+filepath.Base(git.Dir)+".git"), git.Dir+"-clone"
	if flags[0] == "--shared" {
		from = git.Dir
	}
	origin := c.remote("owner/" + filepath.Base(git.Dir) + ".git")
	git.Run(append(append([]string{"clone", "-q"}, flags...), from, to)...)
	git = git.In(to)
	git.Run("config", "url."+c.server.URL("")+".insteadOf", c.remote(""))
	git.Run("remote", "set-url", "origin", origin)
	return git
}
