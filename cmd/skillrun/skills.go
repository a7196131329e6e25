package main

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

	skillrun "github.com/skillrun/skillrun/clients/go"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// skillsCommand calls ListSkills or GetSkill, which know the skills that the daemon has loaded.
// The command validate checks a folder on this machine.
func (a *app) skillsCommand() *cobra.Command {
	var hidden bool
	cmd := &cobra.Command{
		Use:   "skills [SKILL]",
		Short: "List the skills, or show one with its scripts",
		Args:  arguments(needs("[SKILL]")),
		RunE: a.withClient(func(cmd *cobra.Command, args []string, c *skillrun.Client) error {
			if len(args) == 1 {
				return a.showSkill(cmd.Context(), c, args[0])
			}
			return a.listSkills(cmd.Context(), c, hidden)
		}),
		ValidArgsFunction: a.completeSkill,
	}
	cmd.Flags().BoolVarP(&hidden, "all", "a", false, "also skills that ask not to be shown to a model")
	cmd.AddCommand(a.versionsCommand(), a.removeSkillCommand(), a.addCommand())
	return cmd
}

// skills returns all skills, page by page. An error ends the sequence. An empty page with a
// next page is an error too: a faulty daemon could send such pages without end.
// Between two pages skills may come and go, so a list is no snapshot.
func skills(ctx context.Context, c *skillrun.Client, hidden bool) iter.Seq2[*pb.SkillSummary, error] {
	return func(yield func(*pb.SkillSummary, error) bool) {
		request := &pb.ListSkillsRequest{IncludeHidden: hidden}
		for {
			page, err := c.Skills().ListSkills(ctx, request)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, s := range page.GetSkills() {
				if !yield(s, nil) {
					return
				}
			}
			if page.GetNextPageToken() == "" {
				return
			}
			if len(page.GetSkills()) == 0 {
				yield(nil, errEmptyPage)
				return
			}
			request.PageToken = page.GetNextPageToken()
		}
	}
}

// listSkills prints each skill at once with --json, else a table at the end: its columns are as wide
// as their longest cells.
func (a *app) listSkills(ctx context.Context, c *skillrun.Client, hidden bool) error {
	var t table
	var unlisted []string
	t.header("NAME", "DIGEST", "DESCRIPTION")
	for s, err := range skills(ctx, c, hidden) {
		if err != nil {
			return err
		}
		if a.json {
			if err := a.printJSON(s); err != nil {
				return err
			}
			continue
		}
		t.add(plain(s.GetName(), shortDigest(s.GetDigest()), shorten(s.GetDescription()))...)
		if s.GetMcpUnlisted() != "" {
			unlisted = append(unlisted, s.GetName())
		}
	}
	if a.json {
		return nil
	}
	if err := a.print(&t); err != nil || len(unlisted) == 0 {
		return err
	}
	// The header is one of the rows, hence - 1.
	_, err := fmt.Fprintf(a.stderr, "%d of %d not listed over MCP (skillrun validate says why): %s\n",
		len(unlisted), len(t.rows)-1, printable(strings.Join(unlisted, ", ")))
	return err
}

// showSkill leaves empty fields out. Texts of a skill are untrusted; print makes them printable.
func (a *app) showSkill(ctx context.Context, c *skillrun.Client, name string) error {
	answer, err := c.Skills().GetSkill(ctx, &pb.GetSkillRequest{Skill: name})
	if err != nil {
		return fmt.Errorf("skill %s: %w", name, err)
	}
	s := answer.GetSkill()
	if a.json {
		return a.printJSON(s)
	}
	t := &table{}
	t.field("name", s.GetName())
	t.field("description", s.GetDescription())
	t.field("digest", s.GetDigest())
	t.field("version", s.GetVersion())
	t.field("author", s.GetAuthor())
	t.field("license", s.GetLicense())
	t.field("compatibility", s.GetCompatibility())
	t.field("when to use", s.GetWhenToUse())
	if s.GetHasAllowedTools() {
		t.field("allowed tools", strings.Join(s.GetAllowedTools(), ", "))
	} else {
		t.field("allowed tools", "none: without_allowed_tools of the daemon's configuration decides")
	}
	if s.GetMaxExecutionTime() != nil {
		t.field("time", durationText(s.GetMaxExecutionTime()))
	}
	if s.GetMaxMemoryBytes() > 0 {
		t.field("memory", bytesText(s.GetMaxMemoryBytes()))
	}
	t.field("network", fmt.Sprint(s.GetNetworkAccess()))
	t.field("python", s.GetPython())
	t.field("files", fmt.Sprintf("%d, %s", s.GetFileCount(), bytesText(s.GetSizeBytes())))
	for _, script := range s.GetScripts() {
		text := script.GetPath()
		if script.GetLanguage() != "" {
			text += " (" + script.GetLanguage() + ")"
		}
		if first, _, _ := strings.Cut(script.GetDescription(), "\n"); first != "" {
			text += ": " + shorten(first)
		}
		t.field("script", text)
	}
	for _, refused := range s.GetRefused() {
		t.add(cell{text: "refused"}, cell{text: refused.GetPath() + ": " + refused.GetReason(), colour: red})
	}
	for _, finding := range s.GetWarnings() {
		t.add(cell{text: "warning"}, cell{text: findingText(finding), colour: yellow})
	}
	return a.print(t)
}

// shortDigest returns the beginning of a digest, enough to tell two digests apart. Twelve hex digits are
// 48 bits. It returns a shorter or empty digest unchanged.
func shortDigest(digest string) string {
	if len(digest) > len("sha256:")+12 {
		return digest[:len("sha256:")+12]
	}
	return digest
}

// shorten cuts a description to what fits a line.
func shorten(text string) string { return shortenTo(text, 100) }

// shortenTo cuts a text to so many characters. A character is a rune here. A text that is cut
// ends with "…".
func shortenTo(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
