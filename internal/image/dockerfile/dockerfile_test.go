package dockerfile

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
)

// parsed parses a Dockerfile for linux/amd64.
func parsed(t *testing.T, text string, o Options) *File {
	t.Helper()
	o.Platform, o.Host = "linux/amd64", "linux/arm64"
	f, err := Parse([]byte(text), o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// stepsOf returns the steps of the target over a base's configuration.
func stepsOf(t *testing.T, text string, base Config, o Options) ([]Step, Config) {
	t.Helper()
	f := parsed(t, text, o)
	steps, config, _, err := f.Steps(f.Target(), base, nil)
	if err != nil {
		t.Fatal(err)
	}
	return steps, config
}

func TestStages(t *testing.T) {
	const text = `ARG TAG=12
ARG BASE=debian:$TAG
FROM --platform=$BUILDPLATFORM ${BASE} AS build
FROM scratch AS unused
FROM Build
COPY --from=0 /a /
RUN --mount=from=golang:1,target=/go true
COPY --from=unused /b /
`
	f := parsed(t, text, Options{Args: map[string]string{"TAG": "13"}})
	want := []Stage{
		{Name: "build", From: -1, Image: "debian:13", Platform: "linux/arm64"},
		{Name: "unused", From: -1, Image: "scratch", Platform: "linux/amd64"},
		{Name: "stage-2", From: 0, Platform: "linux/amd64"},
	}
	for i, w := range want {
		if got := f.Stage(i); got != w {
			t.Errorf("stage %d is %+v, want %+v", i, got, w)
		}
	}
	if got := f.Needs(2); f.Target() != 2 || !slices.Equal(got, []int{0, 0, 1}) {
		t.Errorf("the target is %d and needs %v", f.Target(), got)
	}
	if got := parsed(t, text, Options{Target: "BUILD"}).Target(); got != 0 {
		t.Errorf("the target BUILD is stage %d, want 0", got)
	}
}

func TestWords(t *testing.T) {
	base := Config{Env: []string{"PATH=/bin", "HOME=/root"}, WorkingDir: "/srv", User: "app"}
	for name, test := range map[string]struct {
		text string
		want Step // Text, History, Line and Config are not compared
	}{
		"ARG in RUN": {"FROM x\nARG A=1\nRUN echo $A", Step{Run: &Run{Args: []string{"/bin/sh", "-c", "echo $A"},
			Env: []string{"A=1", "HOME=/root", "PATH=/bin"}, Dir: "/srv", User: "app"}}},
		"ENV after ARG": {"FROM x\nARG A=1\nENV A=${A}2\nRUN [\"a\",\"$A\"]", Step{Run: &Run{Args: []string{"a", "$A"},
			Env: []string{"A=12", "HOME=/root", "PATH=/bin"}, Dir: "/srv", User: "app"}}},
		"build argument": {"FROM x\nARG B\nRUN b", Step{Run: &Run{Args: []string{"/bin/sh", "-c", "b"},
			Env: []string{"B=given", "HOME=/root", "PATH=/bin"}, Dir: "/srv", User: "app"}}},
		"an argument that is not declared": {"FROM x\nRUN b", Step{Run: &Run{Args: []string{"/bin/sh", "-c", "b"},
			Env: []string{"HOME=/root", "PATH=/bin"}, Dir: "/srv", User: "app"}}},
		"global default in a stage": {"ARG G=g\nFROM x\nARG G\nRUN b", Step{Run: &Run{Args: []string{"/bin/sh", "-c", "b"},
			Env: []string{"G=g", "HOME=/root", "PATH=/bin"}, Dir: "/srv", User: "app"}}},
		"SHELL": {"FROM x\nSHELL [\"/bin/bash\",\"-ec\"]\nRUN a && \\\n  b", Step{Run: &Run{
			Args: []string{"/bin/bash", "-ec", "a &&   b"},
			Env:  []string{"HOME=/root", "PATH=/bin"}, Dir: "/srv", User: "app"}}},
		"heredoc": {"FROM x\nRUN <<EOF\na\nb $C\nEOF", Step{Run: &Run{Args: []string{"/bin/sh", "-c", "a\nb $C\n"},
			Env: []string{"HOME=/root", "PATH=/bin"}, Dir: "/srv", User: "app"}}},
		"heredoc of an interpreter": {"FROM x\nRUN <<EOF\n#!/usr/bin/env python3\nprint(1)\nEOF", Step{Run: &Run{
			Args: []string{"/dev/pipes/EOF"}, Script: "#!/usr/bin/env python3\nprint(1)\n",
			Env: []string{"HOME=/root", "PATH=/bin"}, Dir: "/srv", User: "app"}}},
		"heredoc as input": {"FROM x\nRUN cat <<EOF > /f\nhi\nEOF", Step{Run: &Run{
			Args: []string{"/bin/sh", "-c", "cat <<EOF > /f\nhi\nEOF"},
			Env:  []string{"HOME=/root", "PATH=/bin"}, Dir: "/srv", User: "app"}}},
		"no network": {"FROM x\nRUN --network=none a", Step{Run: &Run{Args: []string{"/bin/sh", "-c", "a"},
			Env: []string{"HOME=/root", "PATH=/bin"}, Dir: "/srv", User: "app", Offline: true}}},
		"WORKDIR": {"FROM x\nENV D=sub\nWORKDIR $D/../b", Step{Dir: "/srv/b"}},
		"COPY": {"FROM x\nARG O=1:2\nCOPY --chown=$O --chmod=755 a b* dir/", Step{Copy: &Copy{From: Source{Stage: -1},
			Sources: []string{"a", "b*"}, Dest: "/srv/dir/", Chown: "1:2", Chmod: "755"}}},
		"COPY to the working directory": {"FROM x\nCOPY a .", Step{Copy: &Copy{From: Source{Stage: -1},
			Sources: []string{"a"}, Dest: "/srv/"}}},
		"COPY over the root": {"FROM x\nCOPY --exclude=*.md --parents a/b /", Step{Copy: &Copy{From: Source{Stage: -1},
			Sources: []string{"a/b"}, Dest: "/", Exclude: []string{"*.md"}, Parents: true}}},
		"COPY of an image": {"FROM x\nCOPY --from=busybox:1 /bin/sh /s", Step{Copy: &Copy{
			From: Source{Stage: -1, Image: "busybox:1"}, Sources: []string{"/bin/sh"}, Dest: "/s"}}},
		"COPY of a heredoc": {"FROM x\nENV N=1\nCOPY <<f <<\"g\" /d/\nn=$N\nf\nn=$N\ng\n", Step{Copy: &Copy{
			From: Source{Stage: -1}, Inline: []Inline{{Name: "f", Data: "n=1\n"}, {Name: "g", Data: "n=$N\n"}}, Dest: "/d/"}}},
		"ADD of a URL": {"FROM x\nADD --checksum=sha256:aa https://example.com/f /f", Step{Copy: &Copy{Add: true,
			From: Source{Stage: -1}, Sources: []string{"https://example.com/f"}, Dest: "/f", Checksum: "sha256:aa"}}},
		"escape directive": {"# escape=`\nFROM x\nCOPY a `\n  b c\\", Step{Copy: &Copy{From: Source{Stage: -1},
			Sources: []string{"a", "b"}, Dest: "/srv/c\\"}}},
	} {
		t.Run(name, func(t *testing.T) {
			steps, _ := stepsOf(t, test.text, base, Options{Args: map[string]string{"B": "given"}})
			got := steps[len(steps)-1]
			got.Text, got.History, got.Line, got.Config = "", "", 0, Config{}
			if !reflect.DeepEqual(got, test.want) {
				t.Errorf("got %+v %+v %+v,\nwant %+v %+v", got, got.Run, got.Copy, test.want.Run, test.want.Copy)
			}
		})
	}
}

func TestMounts(t *testing.T) {
	const text = `FROM x AS first
FROM x
WORKDIR /w
RUN --mount=target=src --mount=type=bind,from=first,source=/out,target=/in,rw a
RUN --mount=type=cache,target=/c/,sharing=locked,mode=700,uid=5 --mount=type=tmpfs,target=/t,size=1m a
RUN --mount=type=secret,id=key --mount=type=secret,id=n,env=TOKEN \
  --mount=type=secret,id=f,target=/f,required,mode=0444 a
`
	steps, _ := stepsOf(t, text, Config{}, Options{})
	none := Source{Stage: -1}
	want := [][]Mount{
		{{Kind: MountBind, From: none, Target: "/w/src", ReadOnly: true},
			{Kind: MountBind, From: Source{Stage: 0}, Path: "/out", Target: "/in"}},
		{{Kind: MountCache, From: none, Target: "/c", ID: "/c", Alone: true, Mode: 0o700, UID: 5},
			{Kind: MountTmpfs, From: none, Target: "/t", Size: 1 << 20}},
		{{Kind: MountSecret, From: none, Target: "/run/secrets/key", ReadOnly: true, ID: "key", File: true, Mode: 0o400},
			{Kind: MountSecret, From: none, ReadOnly: true, ID: "n", Env: "TOKEN", Mode: 0o400},
			{Kind: MountSecret, From: none, Target: "/f", ReadOnly: true, ID: "f", File: true, Required: true, Mode: 0o444}},
	}
	for i, w := range want {
		if got := steps[i+1].Run.Mounts; !reflect.DeepEqual(got, w) {
			t.Errorf("the mounts of %s are\n%+v, want\n%+v", steps[i+1].Text, got, w)
		}
	}
}

func TestConfiguration(t *testing.T) {
	const text = `FROM x
ENV A=1 B="two words"
LABEL k=v$A
CMD ["old"]
ENTRYPOINT run me
CMD ["a", "b"]
EXPOSE 80 8000-8001/udp
VOLUME /data
USER app:$A
STOPSIGNAL SIGINT
HEALTHCHECK --interval=5s CMD true
ONBUILD RUN echo later
SHELL ["/bin/bash", "-c"]
WORKDIR /w
`
	_, got := stepsOf(t, text, Config{Env: []string{"PATH=/bin", "A=0"}, Cmd: []string{"base"}}, Options{})
	if got.Healthcheck == nil || got.Healthcheck.Interval.String() != "5s" {
		t.Errorf("the health check is %+v", got.Healthcheck)
	}
	got.Healthcheck = nil
	want := Config{Env: []string{"PATH=/bin", "A=1", "B=two words"}, Labels: map[string]string{"k": "v1"},
		Entrypoint: []string{"/bin/sh", "-c", "run me"}, Cmd: []string{"a", "b"}, User: "app:1", StopSignal: "SIGINT",
		ExposedPorts: map[string]struct{}{"80/tcp": {}, "8000/udp": {}, "8001/udp": {}},
		Volumes:      map[string]struct{}{"/data": {}}, OnBuild: []string{"RUN echo later"},
		Shell: []string{"/bin/bash", "-c"}, WorkingDir: "/w"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestEntrypointForgetsTheBasesCommand(t *testing.T) {
	_, got := stepsOf(t, "FROM x\nENTRYPOINT [\"e\"]", Config{Cmd: []string{"base"}}, Options{})
	if len(got.Cmd) > 0 {
		t.Errorf("CMD is %q, want none", got.Cmd)
	}
}

// A configuration is that of its step, and not changed by later ones.
func TestStepsKeepTheirConfiguration(t *testing.T) {
	base := Config{Env: []string{"PATH=/bin", "A=0"}, Labels: map[string]string{"l": "0"}}
	steps, _ := stepsOf(t, "FROM x\nRUN a\nENV A=1\nLABEL l=1", base, Options{})
	if got := steps[0].Config; got.Env[1] != "A=0" || got.Labels["l"] != "0" || base.Env[1] != "A=0" {
		t.Errorf("after RUN: %+v; the base: %+v", got, base)
	}
}

func TestTriggers(t *testing.T) {
	steps, config := stepsOf(t, "FROM x\nRUN mine", Config{OnBuild: []string{"COPY . /src", "ARG A=1"}}, Options{})
	if len(steps) != 3 || steps[0].Copy == nil || steps[0].Copy.Dest != "/src" || steps[2].Run == nil {
		t.Errorf("the steps are %+v", steps)
	}
	if len(config.OnBuild) > 0 {
		t.Errorf("the triggers %q are handed on", config.OnBuild)
	}
	if !slices.Contains(steps[2].Run.Env, "A=1") {
		t.Errorf("the environment is %q, without the trigger's ARG", steps[2].Run.Env)
	}
}

func TestArgumentsOfTheStageBefore(t *testing.T) {
	f := parsed(t, "FROM x AS a\nARG A=1\nFROM a\nRUN r", Options{})
	_, config, args, err := f.Steps(0, Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	steps, _, _, err := f.Steps(1, config, args)
	if err != nil || !slices.Contains(steps[0].Run.Env, "A=1") {
		t.Errorf("the environment is %q; %v", steps[0].Run.Env, err)
	}
}

func TestRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":                                     "no instructions",
		"ARG A=1":                              "no FROM",
		"RUN a":                                "line 1",
		"FROM x\nFRUM y":                       "line 2",
		"ARG B\nFROM $B":                       "--build-arg",
		"FROM x\nRUN --security=insecure a":    "--security=insecure",
		"FROM x\nRUN --network=host a":         "--network=host",
		"FROM x\nRUN --mount=type=ssh a":       "type=ssh",
		"FROM x\nRUN --mount=target=/ a":       "below /",
		"FROM x\nCOPY https://example.com/a /": "ADD",
		"FROM x\nADD --checksum=sha256:a a /":  "--checksum",
		"FROM x\nEXPOSE 70000":                 "line 2",
		"FROM x\nEXPOSE 1-9999":                "ports",
		"FROM x\nENV A=" + strings.Repeat("a", 99) + strings.Repeat("\nENV A=$A$A", 60): "expand",
		"FROM x\nEXPOSE 9-1":                    "not a port",
		"FROM x\nCOPY <<../f /d/\n..\n../f\n":   "heredoc",
		"FROM x\n\nENV A=${B:?must be given}\n": "line 3",
	} {
		f, err := Parse([]byte(text), Options{Platform: "linux/amd64"})
		if err == nil {
			_, _, _, err = f.Steps(f.Target(), Config{}, nil)
		}
		var all string
		if e, ok := err.(*cove.Error); ok {
			all = e.Error() + " " + e.Hint
		}
		if !strings.Contains(all, want) {
			t.Errorf("%q: %v, want something about %q", text, err, want)
		}
	}
	if _, err := Parse([]byte("FROM x"), Options{Target: "nowhere"}); cove.ErrorCode(err) != cove.NotFound {
		t.Errorf("a target that is not there: %v", err)
	}
	if _, err := Parse(make([]byte, MaxSize+1), Options{}); cove.ErrorCode(err) != cove.TooLarge {
		t.Errorf("too large: %v", err)
	}
}

// FuzzParse looks for a Dockerfile that ends the program, or whose steps name places that are not absolute.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"FROM scratch\nCOPY a b",
		"ARG A=b\nFROM $A AS c\nRUN <<E\n#!x\nE\nFROM c\nWORKDIR ../$A",
		"# escape=`\nFROM x\nRUN --mount=type=cache,target=a --mount=type=secret,env=B,id=c d", "FROM a\nADD <<b c\nd\nb",
		"FROM a\nONBUILD RUN b\nHEALTHCHECK NONE\nEXPOSE 1-3/udp\nSHELL [\"a\"]\nCMD b"} {
		f.Add([]byte(seed), "A=c")
	}
	f.Fuzz(func(t *testing.T, data []byte, arg string) {
		name, value, _ := strings.Cut(arg, "=")
		file, err := Parse(data, Options{Args: map[string]string{name: value}, Platform: "linux/amd64", Host: "linux/amd64"})
		if err != nil {
			return
		}
		for i := range file.stages {
			for _, n := range file.Needs(i) {
				if n >= i {
					t.Fatalf("stage %d needs stage %d", i, n)
				}
			}
			steps, _, _, err := file.Steps(i, Config{WorkingDir: value, OnBuild: []string{arg}}, nil)
			if err != nil {
				continue
			}
			for _, s := range steps {
				if s.Copy != nil && !strings.HasPrefix(s.Copy.Dest, "/") || s.Dir != "" && !strings.HasPrefix(s.Dir, "/") {
					t.Fatalf("a relative place: %+v %+v", s, s.Copy)
				}
				if s.Run == nil {
					continue
				}
				for _, m := range s.Run.Mounts {
					if m.Target != "" && !strings.HasPrefix(m.Target, "/") {
						t.Fatalf("a relative mount: %+v", m)
					}
				}
			}
		}
	})
}
