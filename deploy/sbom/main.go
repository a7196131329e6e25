// Command sbom writes the bill of materials of a Go program, as CycloneDX JSON, to
// standard output: the modules that the toolchain recorded in the binary, each with its
// checksum, and the libraries that the command line names because a Go program does not
// record them. A program that is built with -trimpath does not record the linker's flags
// either, so VERSION is an argument.
//
//	sbom BINARY VERSION [NAME@VERSION ...]
package main

import (
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

// run writes the bill. args is the command line without the program's name.
func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: sbom BINARY VERSION [NAME@VERSION ...]")
	}
	info, err := buildinfo.ReadFile(args[0])
	if err != nil {
		return err
	}
	bom := cdx.NewBOM()
	bom.Metadata = &cdx.Metadata{Component: &cdx.Component{
		BOMRef: "main", Type: cdx.ComponentTypeApplication, Name: filepath.Base(args[0]), Version: args[1],
		PackageURL: "pkg:golang/" + info.Main.Path + "@" + args[1],
	}}
	components := []cdx.Component{{
		BOMRef: "go", Type: cdx.ComponentTypeLibrary, Name: "go", Version: strings.TrimPrefix(info.GoVersion, "go"),
		Description: "toolchain and standard library",
	}}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		c, err := module(m)
		if err != nil {
			return err
		}
		components = append(components, c)
	}
	for _, arg := range args[2:] {
		name, version, ok := strings.Cut(arg, "@")
		if !ok || version == "" {
			return fmt.Errorf("%q: want NAME@VERSION", arg)
		}
		components = append(components, cdx.Component{BOMRef: arg, Type: cdx.ComponentTypeLibrary, Name: name, Version: version})
	}
	bom.Components = &components
	return cdx.NewBOMEncoder(os.Stdout, cdx.BOMFileFormatJSON).SetPretty(true).Encode(bom)
}

// module describes a module. Its hash is the checksum of go.sum, "h1:" and the
// SHA-256 in base 64 over the list of its files' own.
func module(m *debug.Module) (cdx.Component, error) {
	purl := "pkg:golang/" + m.Path + "@" + m.Version
	c := cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version, PackageURL: purl}
	if sum, ok := strings.CutPrefix(m.Sum, "h1:"); ok {
		raw, err := base64.StdEncoding.DecodeString(sum)
		if err != nil {
			return c, fmt.Errorf("%s: checksum %s: %w", m.Path, m.Sum, err)
		}
		c.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(raw)}}
	}
	return c, nil
}
