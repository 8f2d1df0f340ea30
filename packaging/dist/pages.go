package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"github.com/cove-sandbox/cove/internal/cli"
)

// pages returns the manual pages of all commands, and the completion of shells.
func pages(version string, epoch time.Time) (all []file, err error) {
	root := cli.Reference()
	root.DisableAutoGenTag = true
	if all, err = manual(root, version, epoch, nil); err != nil {
		return nil, err
	}
	for _, shell := range []struct {
		path     string
		generate func(io.Writer) error
	}{
		{"share/bash-completion/completions/cove", func(w io.Writer) error { return root.GenBashCompletionV2(w, true) }},
		{"share/zsh/vendor-completions/_cove", root.GenZshCompletion},
		{"share/fish/vendor_completions.d/cove.fish", func(w io.Writer) error { return root.GenFishCompletion(w, true) }},
	} {
		var text bytes.Buffer
		if err := shell.generate(&text); err != nil {
			return nil, err
		}
		all = append(all, file{path: shell.path, data: text.Bytes(), mode: 0o644})
	}
	return all, nil
}

// manual appends the page of a command and those of the commands below it.
func manual(c *cobra.Command, version string, epoch time.Time, all []file) ([]file, error) {
	name := strings.ReplaceAll(c.CommandPath(), " ", "-")
	var page bytes.Buffer
	header := &doc.GenManHeader{Title: strings.ToUpper(name), Section: "1", Date: &epoch,
		Source: "Cove " + version, Manual: "Cove"}
	if err := doc.GenMan(c, header, &page); err != nil {
		return nil, fmt.Errorf("the page of %s: %w", c.CommandPath(), err)
	}
	all = append(all, file{path: "share/man/man1/" + name + ".1.gz", data: compressed(page.Bytes()), mode: 0o644})
	for _, below := range c.Commands() {
		if !below.IsAvailableCommand() && !below.IsAdditionalHelpTopicCommand() {
			continue
		}
		var err error
		if all, err = manual(below, version, epoch, all); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// compressed returns data as gzip writes it without a name and a time.
func compressed(data []byte) []byte {
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is a valid one
	w.Write(data)                                         // to memory
	w.Close()
	return b.Bytes()
}
