package merge

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cove-sandbox/cove"
	"github.com/cove-sandbox/cove/internal/compose"
)

func loaded(t *testing.T, env map[string]string, texts ...string) *compose.Project {
	t.Helper()
	var files []compose.File
	for i, text := range texts {
		files = append(files, compose.File{Path: fmt.Sprintf("%d.yml", i), Data: []byte(text)})
	}
	p, err := compose.Read(files)
	if err == nil {
		p.Merged, err = Files(compose.Request{Files: files, Env: env})
	}
	if err != nil {
		t.Fatalf("%s: %v", texts, err)
	}
	return p
}

func one(text string, env map[string]string) (compose.Merged, error) {
	return Files(compose.Request{Files: []compose.File{{Path: "0.yml", Data: []byte(text)}}, Env: env})
}

// TestMerge: files are merged as Compose merges them, and a value has the place of the last file that says it.
func TestMerge(t *testing.T) {
	p := loaded(t, map[string]string{"TAG": "7"}, `version: "3"
x-all: &all
  user: ada
services:
  base: {image: "base:${TAG}", environment: {A: "1"}}
  app:
    <<: *all
    extends: base
    environment:
      B: "2"
      C: "3"
    ports: ["80"]
  db: {image: db, privileged: false, cap_add: []}
`, `services:
  app:
    environment: [C=4, "D=${NONE}${ELSE:-d}"]
    ports: !override
      - "81:81"
`)
	app := p.Services["app"]
	got := fmt.Sprint(app.Image, app.User, *app.Environment["A"], *app.Environment["B"], *app.Environment["C"],
		*app.Environment["D"], len(app.Ports), app.Ports[0].Target, p.Services["db"].Keys, p.Unset)
	if want := "base:7ada124d1 81 [image] [NONE]"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for _, c := range []struct {
		path string
		want string
	}{
		{"services app environment B", "0.yml:10"}, {"services app environment C", "1.yml:3"},
		{"services app user", "0.yml:3"},
		{"services app image", "1.yml:2"}, {"services base image", "0.yml:5"}, {"services nobody", "1.yml:1"},
	} {
		file, line := p.Where(strings.Fields(c.path)...)
		if got := fmt.Sprintf("%s:%d", file, line); got != c.want {
			t.Errorf("%s is at %s, want %s", c.path, got, c.want)
		}
	}
	if file, line := p.Variable("NONE"); file != "1.yml" || line != 3 {
		t.Errorf("the variable is at %s:%d", file, line)
	}
}

// TestNothingElseIsRead: neither this process's environment nor a file of the machine is in what is read.
func TestNothingElseIsRead(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	t.Setenv("SECRET", "of the host")
	secret := filepath.Join(dir, "secret.yml")
	const text = "services: {app: {image: of the host}}\nSECRET=of the host\n"
	if err := os.WriteFile(secret, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := loaded(t, nil, `services:
  app:
    image: a
    environment: ["SECRET", "A=${SECRET}", "H=${HOME}"]
    env_file: [`+secret+`]
    label_file: `+secret+`
    volumes: ["~/x:/x"]
configs: {c: {file: `+secret+`}, e: {environment: SECRET}}
secrets: {s: {environment: SECRET}}
`)
	app := p.Services["app"]
	if app.Environment["SECRET"] != nil || *app.Environment["A"]+*app.Environment["H"] != "" ||
		strings.Contains(fmt.Sprintf("%+v", app), "of the host") || strings.Contains(app.Volumes[0].Source, dir) {
		t.Errorf("%+v", app)
	}
	file := compose.File{Path: ".env", Data: []byte("A=${SECRET}$HOME")}
	if env, _, err := compose.Env(file, false, nil); err != nil || env["A"] != "" {
		t.Errorf("%v, %v", env, err)
	}
	for _, text := range []string{
		"include: [" + secret + "]\nservices: {app: {image: a}}",
		"include:\n- path: [" + secret + "]\nservices: {app: {image: a}}",
		"services: {app: {extends: {file: " + secret + ", service: app}}}",
		"x: &e {file: " + secret + ", service: app}\nservices: {app: {image: a, extends: *e}}",
		"x: &e {file: " + secret + "}\nservices: {app: {image: a, extends: {<<: *e, service: app}}}",
		"services: {app: {image: a}}\n---\ninclude: [" + secret + "]",
	} {
		p, err := one(text, nil)
		if cove.ErrorCode(err) != cove.Unsupported || strings.Contains(err.Error(), "of the host") {
			t.Errorf("%s: %+v, %v", text, p, err)
		}
	}
}

// TestHostile: a file that unfolds, or that is not as Compose has it, is an error within bounds.
func TestHostile(t *testing.T) {
	bomb := "x0: &x0 [a,a,a,a,a,a,a,a,a]\n"
	for i := range 12 {
		one := fmt.Sprintf("*x%d", i)
		bomb += fmt.Sprintf("x%d: &x%d [%s]\n", i+1, i+1, strings.Join(slices.Repeat([]string{one}, 9), ","))
	}
	var chain, variables strings.Builder
	for i := range 65 {
		fmt.Fprintf(&chain, "  s%d: {image: a, extends: s%d}\n", i, i+1)
	}
	long := map[string]string{"A": strings.Repeat("a", 64<<10)}
	for range 200 {
		variables.WriteString("  - " + strings.Repeat("$A", maxSplices) + "\n")
	}
	for name, c := range map[string]struct {
		text string
		code cove.Code
	}{
		"aliases":       {bomb, cove.TooLarge},
		"a circle":      {"a: &a [*a]", cove.TooLarge},
		"its own merge": {"a: &a {<<: *a}", cove.TooLarge},
		"deep":          {"a: " + strings.Repeat("[", 200) + strings.Repeat("]", 200), cove.TooLarge},
		"very deep":     {"a: " + strings.Repeat("[", 20000), cove.InvalidArgument},
		"many":          {"a: [" + strings.Repeat("1,", 20000) + "]", cove.TooLarge},
		"large":         {strings.Repeat("#", 256<<10+1), cove.TooLarge},
		"services":      {"services:\n" + chain.String(), cove.TooLarge},
		"variables":     {"x: " + strings.Repeat("${A:-", 5000), cove.TooLarge},
		"long values":   {"services: {a: {image: a}}\nx-a:\n" + variables.String(), cove.TooLarge},
		"no mapping":    {"[1]", cove.InvalidArgument},
		"no text":       {"\x00\xff", cove.InvalidArgument},
		"no services":   {"services: 3", cove.InvalidArgument},
		"extends":       {"services: {a: {image: a, extends: {service: 3}}}", cove.InvalidArgument},
		"itself":        {"services: {a: {image: a, extends: a}}", cove.InvalidArgument},
		"unknown":       {"services: {a: {image: a, wall: none}}", cove.InvalidArgument},
		"required":      {"services: {a: {image: '${A:?gone}'}}", ""},
		"empty":         {"", cove.InvalidArgument},
		"ports":         {"services: {a: {image: a, ports: [1-65535]}}", cove.TooLarge},
		"a variable":    {"services: {a: {image: a, ports: ['${B:-1}-65535']}}", cove.TooLarge},
		"to ports":      {"services: {a: {image: a, ports: ['0.0.0.0:1-65535:1-65535/udp']}}", cove.TooLarge},
		"exposed":       {"services: {a: {image: a, expose: ['1-65535']}}", cove.TooLarge},
		"to one port":   {"services: {a: {image: a, ports: ['1-65535:80']}}", ""},
		"a few ports":   {"services: {a: {image: a, ports: ['127.0.0.1:80-89:80-89']}}", ""},
	} {
		if _, err := one(c.text, long); cove.ErrorCode(err) != c.code {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// FuzzFiles: no file makes the reader fail otherwise than by an error.
func FuzzFiles(f *testing.F) {
	f.Add("services: {a: {image: a, build: {context: .}, ports: ['1:2'], environment: [A=${B}]}}", "A=$B")
	f.Add("a: &a {b: *a}\nservices:\n  <<: *a", "A='")
	f.Fuzz(func(t *testing.T, text, env string) {
		known, _, err := compose.Env(compose.File{Path: ".env", Data: []byte(env)}, false, nil)
		if err != nil && cove.ErrorCode(err) == cove.Internal {
			t.Errorf("%q: %v", env, err)
		}
		if p, err := one(text, known); err == nil {
			for name, s := range p.Services {
				if s.Name != name {
					t.Errorf("%q: the service %q has the name %q", text, name, s.Name)
				}
			}
		} else if cove.ErrorCode(err) == cove.Internal {
			t.Errorf("%q: %v", text, err)
		}
	})
}
