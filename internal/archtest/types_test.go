package archtest

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

const (
	maxInterfaceMethods = 15
	maxTypeMethods      = 30
	minArrowFiles       = 7 // a package of fewer files is read as one
)

// typed is a package of the product, type-checked.
type typed struct {
	path  string // below the module, "cove" for the root
	files []*ast.File
	types *types.Package
	info  *types.Info
	set   *token.FileSet
}

func (p typed) file(pos token.Pos) string { return filepath.Base(p.set.Position(pos).Filename) }

// site names a place for a report.
func (p typed) site(pos token.Pos, what string) string {
	at := p.set.Position(pos)
	return site(p.path+"/"+filepath.Base(at.Filename), at.Line, what)
}

var checkOnce struct {
	sync.Once
	all []typed
	err error
}

// typedPackages type-checks every package of the product, once for all tests. What
// a package imports is read from the export data that the go tool caches.
func typedPackages(t *testing.T) []typed {
	t.Helper()
	base := root(t)
	checkOnce.Do(func() {
		list := goTool(t, base, "list", "-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles", "./...")
		checkOnce.all, checkOnce.err = checkTypes(list)
	})
	if checkOnce.err != nil {
		t.Fatal(checkOnce.err)
	}
	if len(checkOnce.all) < 10 {
		t.Fatalf("only %d packages were checked", len(checkOnce.all))
	}
	return checkOnce.all
}

func checkTypes(list string) ([]typed, error) {
	type listed struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}
	exports, ours := map[string]string{}, []listed{}
	for d := json.NewDecoder(strings.NewReader(list)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, err
		}
		exports[p.ImportPath] = p.Export
		if path, ok := below(p.ImportPath); ok && isProduct(filepath.Join(path, "x.go")) {
			ours = append(ours, p)
		}
	}
	set := token.NewFileSet()
	from := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	var all []typed
	for _, l := range ours {
		p := typed{path: "cove", set: set, info: &types.Info{
			Uses: map[*ast.Ident]types.Object{}, Types: map[ast.Expr]types.TypeAndValue{}}}
		if path, _ := below(l.ImportPath); path != "" {
			p.path = path
		}
		for _, name := range l.GoFiles {
			f, err := parser.ParseFile(set, filepath.Join(l.Dir, name), nil, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			p.files = append(p.files, f)
		}
		var err error
		if p.types, err = (&types.Config{Importer: from}).Check(l.ImportPath, set, p.files, p.info); err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	return all, nil
}

// TestArrows bounds, in each package, the references between its files that lie in
// circles: where references run one way, a reader can begin at the bottom.
func TestArrows(t *testing.T) {
	found := findings{}
	for _, p := range typedPackages(t) {
		if len(p.files) < minArrowFiles {
			continue
		}
		graph, why := p.arrows()
		for _, arrow := range circular(graph) {
			found.add(p.path, arrow[0]+" → "+arrow[1]+" ("+why[arrow]+")")
		}
	}
	found.hold(t, "arrows")
}

// arrows are the references from file to file, with the first name that each is for.
func (p typed) arrows() (graph map[string][]string, why map[[2]string]string) {
	graph, why = map[string][]string{}, map[[2]string]string{}
	for _, f := range p.files {
		from := p.file(f.Package)
		ast.Inspect(f, func(n ast.Node) bool {
			ident, ok := n.(*ast.Ident)
			if !ok {
				return true
			}
			object := p.info.Uses[ident]
			if object == nil || object.Pkg() != p.types {
				return true
			}
			arrow := [2]string{from, p.file(object.Pos())}
			if arrow[0] == arrow[1] || why[arrow] != "" {
				return true
			}
			why[arrow] = object.Name()
			graph[from] = append(graph[from], arrow[1])
			return true
		})
	}
	return graph, why
}

// TestTypesAreSmall bounds interfaces of more than 15 methods, types of more than 30, and contexts in fields.
func TestTypesAreSmall(t *testing.T) {
	interfaces, methods, contexts := findings{}, findings{}, findings{}
	for _, p := range typedPackages(t) {
		scope := p.types.Scope()
		for _, name := range scope.Names() {
			object, ok := scope.Lookup(name).(*types.TypeName)
			if !ok || object.IsAlias() {
				continue
			}
			subject := p.path + "." + name
			if i, ok := object.Type().Underlying().(*types.Interface); ok && i.NumMethods() > maxInterfaceMethods {
				interfaces[subject] = finding{count: i.NumMethods()}
			}
			if named, ok := object.Type().(*types.Named); ok && named.NumMethods() > maxTypeMethods {
				methods[subject] = finding{count: named.NumMethods()}
			}
		}
		for _, f := range p.files {
			ast.Inspect(f, func(n ast.Node) bool {
				s, ok := n.(*ast.StructType)
				if !ok {
					return true
				}
				for _, field := range s.Fields.List {
					if of := p.info.TypeOf(field.Type); of != nil && of.String() == "context.Context" {
						contexts.add(p.path, p.site(field.Pos(), "context.Context"))
					}
				}
				return true
			})
		}
	}
	interfaces.hold(t, "wide-interfaces")
	methods.hold(t, "large-types")
	contexts.hold(t, "contexts-in-fields")
}
