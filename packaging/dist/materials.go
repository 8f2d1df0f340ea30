package main

import (
	"debug/buildinfo"
	"os"
	"path/filepath"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// materials writes a bill of materials in the form of CycloneDX: the programs, and the modules that are in them, as the
// programs say themselves.
func (r *release) materials(to string, programs []string) error {
	modules := map[string]cdx.Component{}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{
		Timestamp: r.epoch.Format("2006-01-02T15:04:05Z"),
		Component: &cdx.Component{BOMRef: "cove", Type: cdx.ComponentTypeApplication, Name: "cove", Version: r.version},
	}
	bom.Dependencies = &[]cdx.Dependency{}
	for _, p := range programs {
		info, err := buildinfo.ReadFile(p)
		if err != nil {
			return err
		}
		name := filepath.Base(p)
		needs := []string{goToolchain(info.GoVersion).BOMRef}
		modules[needs[0]] = goToolchain(info.GoVersion)
		for _, m := range info.Deps {
			if m.Replace != nil {
				m = m.Replace
			}
			c := cdx.Component{Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version,
				PackageURL: "pkg:golang/" + m.Path + "@" + m.Version}
			c.BOMRef = c.PackageURL
			modules[c.BOMRef] = c
			needs = append(needs, c.BOMRef)
		}
		slices.Sort(needs)
		modules[name] = cdx.Component{BOMRef: "program:" + name, Type: cdx.ComponentTypeApplication, Name: name,
			Version: r.version}
		*bom.Dependencies = append(*bom.Dependencies, cdx.Dependency{Ref: "program:" + name, Dependencies: &needs})
	}
	var all []cdx.Component
	for _, c := range modules {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b cdx.Component) int { return strings.Compare(a.BOMRef, b.BOMRef) })
	bom.Components = &all
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	e := cdx.NewBOMEncoder(out, cdx.BOMFileFormatJSON)
	if err := e.SetPretty(true).Encode(bom); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}

// goToolchain is the standard library that a program has from its toolchain.
func goToolchain(version string) cdx.Component {
	version = strings.TrimPrefix(version, "go")
	return cdx.Component{
		BOMRef:     "pkg:golang/std@" + version,
		Type:       cdx.ComponentTypeLibrary,
		Name:       "std",
		Version:    version,
		PackageURL: "pkg:golang/std@" + version,
	}
}
