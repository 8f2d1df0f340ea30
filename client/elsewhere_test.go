package client_test

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestBuildsElsewhere: programs of other systems talk to a server with this package and with package driver, and people
// with cove. To compile them, and with them the standard library of three systems, takes minutes, and finds no more
// than to check their types does; both are done with COVE_TEST_LONG=1.
func TestBuildsElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("checks the types of all that cove is made of on other systems; make test does")
	}
	packages := []string{".", "../driver", "../cmd/cove"}
	// No file is about an architecture there, so one is enough; a release is built with the same flags.
	for _, system := range []string{"darwin", "windows", "freebsd"} {
		t.Run(system, func(t *testing.T) { // one after the other: each uses all processors
			elsewhere := func(args ...string) []byte {
				c := exec.Command("go", append(args, packages...)...)
				c.Env = append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")
				var stderr strings.Builder
				c.Stderr = &stderr
				out, err := c.Output()
				if err != nil {
					t.Fatalf("go %s: %v: %s", args[0], err, stderr.String())
				}
				return out
			}
			checkTypes(t, elsewhere("list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Module"))
			if os.Getenv("COVE_TEST_LONG") != "" {
				elsewhere("build", "-trimpath", "-o", t.TempDir()+string(filepath.Separator))
			}
		})
	}
}

// checkTypes checks packages in the order in which "go list -deps -json" has them: what one imports is before it. Of
// packages of others only what they offer is looked at.
func checkTypes(t *testing.T, list []byte) {
	t.Helper()
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	for d := json.NewDecoder(strings.NewReader(string(list))); ; {
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
			ImportMap       map[string]string
			Module          struct{ Main bool }
		}
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if p.ImportPath == "unsafe" {
			continue
		}
		set := token.NewFileSet()
		var files []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, f)
		}
		config := types.Config{IgnoreFuncBodies: !p.Module.Main, Sizes: types.SizesFor("gc", "amd64"),
			Importer: importing(func(path string) *types.Package {
				if vendored, ok := p.ImportMap[path]; ok {
					path = vendored
				}
				return checked[path]
			})}
		config.Error = func(err error) { t.Errorf("%s: %v", p.ImportPath, err) }
		checked[p.ImportPath], _ = config.Check(p.ImportPath, set, files, nil) // Error has been told
	}
	if len(checked) < 100 {
		t.Errorf("only %d packages were checked", len(checked))
	}
}

// importing is an importer of packages that are there.
type importing func(path string) *types.Package

func (i importing) Import(path string) (*types.Package, error) {
	if p := i(path); p != nil {
		return p, nil
	}
	return nil, errors.New("not listed")
}
