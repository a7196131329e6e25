package mcp

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/skillrun/skillrun/internal/audit"
	"github.com/skillrun/skillrun/internal/ingress"
	"github.com/skillrun/skillrun/internal/ingress/identity"
	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/skill"
	"github.com/skillrun/skillrun/internal/skill/snapshot"
	"github.com/skillrun/skillrun/internal/wellknown"
)

// The index of a tenant's skills, as docs/well-known-uri.mdx of agentskills/agentskills defines it, and
// the artifacts that the index names: a SKILL.md, or an archive of the files that skills/list names.
// The URL of an artifact has the skill's name and digest, so it never means another version.

// publishedDir is the directory of the index.
const publishedDir = "/.well-known/agent-skills/"

// methodPublished is the row of accessTable for the index and the artifacts.
const methodPublished = "GET " + wellknown.Path

// archiveName is the last segment of an archive's URL. The URL of a SKILL.md ends in manifestName.
const archiveName = "skill.tar.gz"

// artifactURL matches an artifact's path beneath publishedDir: the skill's name, the hex digits of its
// digest, and the file.
var artifactURL = lazyregexp.New(`^([a-z0-9-]+)/([0-9a-f]{64})/(SKILL\.md|skill\.tar\.gz)$`)

// semanticVersion matches the versions that an index may have, see semver.org.
var semanticVersion = lazyregexp.New(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?$`)

// servePublished answers a request for the index or for an artifact.
// The cheapest check comes first: role, number of requests of the tenant, memory. Only then are
// files read.
func (s *Server) servePublished(w http.ResponseWriter, r *http.Request, who identity.Identity) {
	defer ingress.ConnOf(r).Begin()()
	ctx, cancel := context.WithTimeout(r.Context(), publishTime)
	defer cancel()
	c := &caller{Identity: who, address: ingress.ConnOf(r).From(), here: ctx}
	ctx = audit.WithCaller(ctx, &audit.Caller{Address: c.address, Method: methodPublished})
	if reason, err := s.mayCall(c, methodPublished, accessTable[methodPublished]); err != nil {
		entry := audit.By(ctx, audit.Call, c.Tenant, c.Name)
		entry.Reason = reason
		s.audit.NoteRefusal(entry, err)
		status := http.StatusForbidden
		if reason == saturated {
			status = http.StatusTooManyRequests
		}
		refuse(status, "%v", err).write(w)
		return
	}
	leave, ok := s.publishing.enter(c.Tenant)
	if !ok {
		refuse(http.StatusServiceUnavailable, "tenant %s has %d requests for its index and its artifacts under way, which is the maximum; retry shortly", c.Tenant, maxPublishing).write(w)
		return
	}
	defer leave()
	release, ok := s.hold(ingress.ConnOf(r), publishBytes)
	if !ok {
		refuseBusy().write(w)
		return
	}
	defer release()
	// The answer depends on the caller. A client may keep it, and asks whether it has changed.
	w.Header().Set("Cache-Control", "private, no-cache")
	w.Header().Set("Vary", "Authorization")
	if r.URL.Path == wellknown.Path {
		s.serveIndex(ctx, w, r, c.Tenant)
		return
	}
	s.serveArtifact(ctx, w, r, c.Tenant)
}

// Digests of archives are kept with the skill, so a request that ran out of time leaves less to do
// for the next one.
func (s *Server) serveIndex(ctx context.Context, w http.ResponseWriter, r *http.Request, tenant string) {
	data, err := wellknown.EncodeIndex(s.publishedSkills(ctx, tenant))
	switch {
	case ctx.Err() != nil:
		refuse(http.StatusServiceUnavailable, "the archives of all skills could not be read within %s; retry, the daemon goes on from there", publishTime).write(w)
	case err != nil:
		refuse(http.StatusInternalServerError, "%v; let the tenant see fewer skills (shared_skills)", err).write(w)
	default:
		describe(w, "application/json", fmt.Sprintf("sha256:%x", sha256.Sum256(data)))
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(string(data)))
	}
}

// publishedSkills returns the entries of a tenant's index. It leaves out a skill that cannot be read now.
func (s *Server) publishedSkills(ctx context.Context, tenant string) (entries []wellknown.Entry) {
	view := s.skills.For(tenant)
	for _, sk := range view.List() {
		if ctx.Err() != nil {
			return nil
		}
		listing, ok := publishable(sk)
		if !ok {
			continue
		}
		// An index has no namespaces. A skill that needs its namespace here cannot be named there.
		if named, err := view.Resolve(sk.BareName()); err != nil || named.Name != sk.Name {
			continue
		}
		a, err := artifactOf(ctx, sk)
		if err != nil {
			s.unpublished(ctx, err)
			continue
		}
		e := wellknown.Entry{
			Name: sk.BareName(), Type: a.kind, Description: listing.Description, Digest: a.digest,
			URL: sk.BareName() + "/" + strings.TrimPrefix(sk.Digest, "sha256:") + "/" + a.file,
		}
		if v := sk.EffectiveVersion(); v != "0.0.0" && semanticVersion.MatchString(v) {
			e.Version = v
		}
		entries = append(entries, e)
	}
	return entries
}

// publishable reports whether an index may have a skill: one that skills/list has.
func publishable(sk *skill.Skill) (skill.Listing, bool) {
	listing, err := sk.Listing()
	return listing, err == nil && !sk.Manifest.DisableModelInvocation
}

// unpublished logs why a skill could not be read, if that is an error of the daemon. A deleted skill and a
// file with a lease of a script are no errors of the daemon.
func (s *Server) unpublished(ctx context.Context, err error) {
	if ctx.Err() == nil && !errors.Is(err, skill.ErrNotFound) && !errors.Is(err, snapshot.ErrBusy) {
		_ = s.explain(err) // logs it
	}
}

// serveArtifact answers with a SKILL.md or an archive. Every kept version of a skill has its URL.
// A skill of another tenant, a removed version and a file that an artifact does not have get the
// same answer, so callers do not learn which skills others have.
func (s *Server) serveArtifact(ctx context.Context, w http.ResponseWriter, r *http.Request, tenant string) {
	missing := refuse(http.StatusNotFound, "no artifact is at %.300q; %s has those that are", r.URL.Path, wellknown.Path)
	part := artifactURL.FindStringSubmatch(strings.TrimPrefix(r.URL.Path, publishedDir))
	if part == nil {
		missing.write(w)
		return
	}
	sk, release, err := s.skills.For(tenant).Hold(part[1] + "@sha256:" + part[2])
	if err != nil {
		missing.write(w)
		return
	}
	defer release()
	if _, ok := publishable(sk); !ok || sk.BareName() != part[1] {
		missing.write(w)
		return
	}
	a, err := artifactOf(ctx, sk)
	if err != nil {
		s.unpublished(ctx, err)
		refuse(http.StatusServiceUnavailable, "skill %s cannot be read now; retry shortly", sk.Name).write(w)
		return
	}
	if a.file != part[3] {
		missing.write(w)
		return
	}
	s.send(ctx, w, r, sk, a)
}

// send sends an artifact.
// An archive is made while it is sent and never kept: its bytes are the same each time, which
// wellknown.WriteArchive promises.
func (s *Server) send(ctx context.Context, w http.ResponseWriter, r *http.Request, sk *skill.Skill, a artifact) {
	if a.kind == wellknown.TypeSkillMD {
		f, _, err := sk.Open(manifestName)
		if err != nil {
			s.unpublished(ctx, err)
			refuse(http.StatusServiceUnavailable, "skill %s cannot be read now; retry shortly", sk.Name).write(w)
			return
		}
		defer f.Close()
		describe(w, "text/markdown", a.digest)
		http.ServeContent(w, r, "", time.Time{}, f)
		return
	}
	describe(w, "application/gzip", a.digest)
	if strings.Contains(r.Header.Get("If-None-Match"), w.Header().Get("ETag")) { // a digest is part of no other tag
		w.WriteHeader(http.StatusNotModified)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(a.size, 10))
	if r.Method == http.MethodHead {
		return
	}
	// After an error the answer is shorter than its Content-Length, so net/http closes the connection, and
	// the client knows that the archive is not whole.
	if err := wellknown.WriteArchive(w, filesOf(ctx, sk)); err != nil {
		s.log.Info("an archive of a skill was not sent", "skill", sk.Name, "err", err)
	}
}

// describe sets the headers of content with a digest.
func describe(w http.ResponseWriter, contentType, digest string) {
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("ETag", `"`+digest+`"`)
}

// An artifact describes the file of a published skill. An archive is made again for each download.
type artifact struct {
	kind, file string
	digest     string
	size       int64
}

// artifactKey is the key of skill.Derived.
type artifactKey struct{}

// artifactOf returns the artifact of a skill that is publishable. A skill keeps it, so its files are read
// for the digest once.
func artifactOf(ctx context.Context, sk *skill.Skill) (artifact, error) {
	return skill.Derived(sk, artifactKey{}, func() (artifact, error) {
		files := sk.Files()
		if len(files) == 1 && !files[0].Entry.Executable {
			e := files[0].Entry
			return artifact{wellknown.TypeSkillMD, manifestName, "sha256:" + e.SHA256, e.Size}, nil
		}
		sum, size := sha256.New(), counter(0)
		if err := wellknown.WriteArchive(io.MultiWriter(sum, &size), filesOf(ctx, sk)); err != nil {
			return artifact{}, fmt.Errorf("archive of the skill %s: %w", sk.Name, err)
		}
		return artifact{wellknown.TypeArchive, archiveName, fmt.Sprintf("sha256:%x", sum.Sum(nil)), int64(size)}, nil
	})
}

// filesOf returns the files of a skill's archive. A link is a copy of the file it leads to, since many
// clients refuse archives with links. No file is opened after the end of ctx.
func filesOf(ctx context.Context, sk *skill.Skill) (files []wellknown.File) {
	for _, f := range sk.Files() {
		files = append(files, wellknown.File{Path: f.Path, Size: f.Entry.Size, Executable: f.Entry.Executable, Open: func() (io.ReadCloser, error) {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			file, _, err := sk.Open(f.Path)
			if err != nil {
				return nil, err
			}
			return file, nil
		}})
	}
	return files
}

// A counter counts the bytes that are written to it.
type counter int64

func (c *counter) Write(p []byte) (int, error) { *c += counter(len(p)); return len(p), nil }

// A tenantLimit bounds requests under way for each tenant.
type tenantLimit struct {
	mu  sync.Mutex
	now map[string]int // by tenant; no zeros
}

// enter returns false if the tenant has maxPublishing requests under way. Otherwise leave must be called.
func (l *tenantLimit) enter(tenant string) (leave func(), ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.now[tenant] == maxPublishing {
		return nil, false
	}
	l.now[tenant]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.now[tenant]--; l.now[tenant] == 0 {
			delete(l.now, tenant)
		}
	}, true
}
