package server

import (
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/manifest"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
	pb "github.com/skillrun/skillrun/proto/skillrun/v1"
)

// fromSkill turns a skill into a message with every field of its front matter.
// Long lists end where a message would get too large for a client.
// text and texts replace bytes that are not UTF-8: protobuf refuses to encode such a string, and
// one bad file name must not make a whole answer fail.
func fromSkill(sk *skill.Skill) (*pb.Skill, error) {
	f := sk.Manifest
	m := &pb.Skill{
		Name:                   text(sk.Name),
		Description:            text(f.Description),
		Digest:                 sk.Digest,
		License:                text(f.License),
		Compatibility:          text(f.Compatibility),
		Metadata:               make(map[string]string, len(f.Metadata)),
		AllowedTools:           texts(f.AllowedTools),
		HasAllowedTools:        f.HasAllowedTools,
		Version:                text(sk.EffectiveVersion()),
		Author:                 text(f.Author),
		Tags:                   texts(f.Tags),
		ActivationMode:         text(f.ActivationMode),
		RequiredTools:          texts(f.RequiredTools),
		OptionalTools:          texts(f.OptionalTools),
		Model:                  text(f.Model),
		Mode:                   f.Mode,
		WhenToUse:              text(f.WhenToUse),
		DisableModelInvocation: f.DisableModelInvocation,
		MaxMemoryBytes:         uint64(f.MaxMemoryBytes),
		NetworkAccess:          f.NetworkAccess,
		Python:                 f.Python,
		PythonPackages:         texts(f.PythonPackages),
		SystemPackages:         texts(f.SystemPackages),
		Warnings:               fromFindings(sk.Warnings),
		FileCount:              uint64(sk.FileCount),
		SizeBytes:              uint64(sk.SizeBytes),
	}
	for key, value := range f.Metadata {
		m.Metadata[text(key)] = text(value)
	}
	if f.MaxExecutionTime > 0 {
		m.MaxExecutionTime = durationpb.New(f.MaxExecutionTime)
	}
	if len(f.Unknown) > 0 {
		var err error
		if m.UnknownFields, err = structpb.NewStruct(f.Unknown); err != nil {
			return nil, fmt.Errorf("skill %s: unknown fields: %w", sk.Name, err)
		}
	}
	// The lists share the rest of the message's size, in this order.
	room := maxAnswerBytes - proto.Size(m)
	m.Scripts = fitting(&room, sk.Scripts, func(s snapshot.Script) *pb.SkillScript {
		return &pb.SkillScript{Path: text(s.Path), Language: s.Language, Description: text(s.Description)}
	})
	m.Requirements = fitting(&room, sk.Requirements(), func(r manifest.Requirement) *pb.SkillRequirement {
		return &pb.SkillRequirement{Text: text(r.Text), System: r.System, File: text(r.File), Line: uint32(r.Line), Script: text(r.Script)}
	})
	m.Refused = fitting(&room, sk.Refused, func(r snapshot.Refused) *pb.RefusedEntry {
		return &pb.RefusedEntry{Path: text(r.Path), Reason: text(r.Reason)}
	})
	return m, nil
}
