package main

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skillrun/skillrun/internal/image"
	"github.com/skillrun/skillrun/internal/lazyregexp"
	"github.com/skillrun/skillrun/internal/runtime"
	"github.com/skillrun/skillrun/internal/server"
	"github.com/skillrun/skillrun/sandbox"
)

// An imageConfig describes a root file system for sandboxes: a directory (Rootfs) or an
// image (Image), not both. Credentials applies to Image only. Its zero value means anonymous.
type imageConfig struct {
	Rootfs      string            `yaml:"rootfs"`
	Image       string            `yaml:"image"`
	Credentials image.Credentials `yaml:"credentials"`
}

// Words in runtimes that are neither an image's name nor a language.
const (
	hostRuntime    = "host"    // a value: the host's root file system
	defaultRuntime = "default" // a key: all languages that have no key
)

// Names appear in the log and in GetCapabilities.
var validImageName = lazyregexp.New(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// maxImages bounds how many root file systems a daemon mounts.
const maxImages = 32

// source is the image as package image takes it. Without credentials it pulls anonymously.
func (i imageConfig) source() image.Source {
	s := image.Source{Reference: i.Image, Credentials: i.Credentials}
	if s.Credentials == "" {
		s.Credentials = image.None
	}
	return s
}

// checkImages reports mistakes in images and in runtimes.
func (c *config) checkImages(bad badFunc) {
	if len(c.Images) > maxImages {
		bad("images", "%d images; write at most %d", len(c.Images), maxImages)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Images)) {
		c.checkImage("images."+name, name, bad)
	}
	languages := append([]string{defaultRuntime}, runtime.Languages()...)
	for _, language := range slices.Sorted(maps.Keys(c.Runtimes)) {
		key, name := "runtimes."+language, c.Runtimes[language]
		if !slices.Contains(languages, language) {
			bad(key, "unknown; write one of %s", orList(languages))
		}
		if _, ok := c.Images[name]; !ok && name != hostRuntime {
			bad(key, "%q is neither host nor a name of images; write %s", name, orList(append([]string{hostRuntime}, slices.Sorted(maps.Keys(c.Images))...)))
		}
	}
}

// checkImage reports mistakes in one image. key is its key in the file.
func (c *config) checkImage(key, name string, bad badFunc) {
	if !validImageName.MatchString(name) || name == hostRuntime {
		bad(key, "%q cannot be a name; write up to 64 of a-z, 0-9, '.', '_' and '-', and not host", name)
	}
	i := c.Images[name]
	if i.Credentials != "" {
		oneOf(bad, key+".credentials", string(i.Credentials), string(image.None), string(image.Docker))
	}
	switch {
	case (i.Rootfs == "") == (i.Image == ""):
		bad(key, "set one of rootfs (a directory) and image (a reference with a digest)")
	case i.Rootfs != "" && i.Credentials != "":
		bad(key+".credentials", "a directory needs no credentials; remove this key")
	case i.Rootfs != "":
		c.checkRootfs(key+".rootfs", i.Rootfs, bad)
	default:
		if err := i.source().Check(); err != nil {
			bad(key+".image", "%v", err)
		}
	}
}

// checkRootfs refuses a root directory that contains files of the daemon or lies among
// them, because every sandbox could read them.
func (c *config) checkRootfs(key, dir string, bad badFunc) {
	for _, own := range []string{c.StateDir, c.RunDir} {
		if rel, err := filepath.Rel(dir, own); err == nil && filepath.IsLocal(rel) {
			bad(key, "%s contains %s, which no sandbox may see; write a directory with the root file system alone", dir, own)
		}
		if rel, err := filepath.Rel(own, dir); err == nil && filepath.IsLocal(rel) && rel != "." {
			bad(key, "%s lies in %s, which belongs to the daemon; write a directory with the root file system alone", dir, own)
		}
	}
}

// usedImages returns the sorted names of the images that runtimes refers to. Only these are
// pulled and mounted: an image that no language uses costs nothing.
func (c *config) usedImages() []string {
	var names []string
	for _, name := range c.Runtimes {
		if name != hostRuntime && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// images holds the root file systems that runtimes refers to, without the host's. The order of
// used is the order of their names, in every start.
type images struct {
	store *image.Store
	used  []runtime.Image
}

// openImages pulls the images that are not in the store yet. Executions never wait for a
// pull. All pulls together have the time of pull.wall_time. At the end it removes the images in
// the store that no daemon uses any longer (Prune).
func openImages(ctx context.Context, c config, log *slog.Logger) (_ images, err error) {
	var all images
	used := c.usedImages()
	for _, name := range slices.Sorted(maps.Keys(c.Images)) {
		if !slices.Contains(used, name) {
			log.Info("image not used: runtimes does not name it", "image", name)
		}
	}
	patience := time.Duration(c.Pull.WallTime)
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	// systemd would end a start that takes longer than its TimeoutStartSec; this extends it
	// (sd_notify(3)). The minute is for the parts after the images.
	if len(used) > 0 {
		notify(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", (patience + time.Minute).Microseconds()))
	}
	all.store, err = image.Open(ctx, image.Config{
		Dir: filepath.Join(c.StateDir, "images"), Bytes: int64(c.Pull.Bytes), Files: c.Pull.Files, Log: log,
	})
	if err != nil {
		return all, err
	}
	for _, name := range used {
		one, err := all.get(ctx, name, c.Images[name])
		if err != nil {
			return all, fmt.Errorf("images.%s: %w", name, err)
		}
		all.used = append(all.used, one)
	}
	return all, all.store.Prune()
}

// get pulls one image. A root directory needs no pull.
func (all images) get(ctx context.Context, name string, i imageConfig) (runtime.Image, error) {
	if i.Rootfs != "" {
		return runtime.Image{Name: name, Dir: i.Rootfs, Digest: "directory:" + i.Rootfs}, nil
	}
	got, err := all.store.Get(ctx, i.source())
	return runtime.Image{Name: name, Dir: got.Dir, Digest: got.Digest}, err
}

// roots returns the root file systems for sandbox.Open, with the links that each needs.
// The links depend only on which programs an image has. No program of an image is executed
// here, because that needs a sandbox.
func (all images) roots(ctx context.Context) ([]sandbox.Root, error) {
	var roots []sandbox.Root
	for _, i := range all.used {
		set, err := runtime.Discover(ctx, runtime.Config{Image: i})
		if err != nil {
			return nil, fmt.Errorf("images.%s: %w", i.Name, err)
		}
		roots = append(roots, sandbox.Root{Name: i.Name, Dir: i.Dir, Links: set.Links()})
	}
	return roots, nil
}

// close closes the store. It is safe on the zero images, which a failed start may have.
func (all images) close() error {
	if all.store == nil {
		return nil
	}
	return all.store.Close()
}

// routeRuntimes asks the programs of images for their versions and routes each language to
// the root file system that the configuration names. If boundaries are missing, it executes
// no program.
func (d *daemon) routeRuntimes(ctx context.Context) error {
	sets := map[string]*runtime.Set{hostRuntime: d.runtimes}
	for _, i := range d.images.used {
		set, err := d.runtimesIn(ctx, i)
		if err != nil {
			return fmt.Errorf("images.%s: %w", i.Name, err)
		}
		sets[i.Name] = set
	}
	by := map[string]*runtime.Set{}
	// validate has made sure that every name is in sets and that there is a default.
	for what, name := range d.config.Runtimes {
		if what != defaultRuntime {
			by[what] = sets[name]
		}
	}
	d.runtimes = sets[d.config.Runtimes[defaultRuntime]].Route(by)
	return nil
}

// runtimesIn finds the interpreters of an image. While boundaries are missing it looks at files
// only, so versions stay unknown.
func (d *daemon) runtimesIn(ctx context.Context, i runtime.Image) (*runtime.Set, error) {
	config := runtime.Config{Image: i, Python: runtime.Python(d.config.Python)}
	if len(d.missing) > 0 {
		return runtime.Discover(ctx, config)
	}
	config.Ask = askIn(d.host, i.Name)
	set, err := runtime.Discover(ctx, config)
	if err != nil {
		return nil, err
	}
	if d.python == nil {
		return set, nil
	}
	if d.python.AskEmbedded(ctx, config.Ask) {
		return set.WithEmbedded(d.python), nil
	}
	d.log.Warn("the embedded Python does not run in an image: the image lacks glibc", "image", i.Name)
	return set.WithoutEmbedded("the embedded Python does not run in the image: the image lacks glibc"), nil
}

// Limits of a program of an image that is asked for its version. They are generous: an
// interpreter prints its version in well under a second.
const (
	askWall      = 10 * time.Second
	askMemory    = 256 << 20
	askProcesses = 32
	askBytes     = 4 << 10
)

var asked atomic.Uint64 // numbers the sandboxes' ids

// askIn returns a function that runs a program of an image in a sandbox and returns its
// output. The output is nil if the program can't be executed or fails.
func askIn(host *sandbox.Host, name string) runtime.Asker {
	return func(ctx context.Context, args []string, mounts []runtime.Mount) []byte {
		var answer begin
		spec := sandbox.Spec{
			ID: fmt.Sprintf("ask-%d", asked.Add(1)), Root: name,
			Program: sandbox.Program{{Pipeline: []sandbox.Command{{Args: args}}}},
			Env:     []string{"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=/home/skill", "LANG=C.UTF-8"},
			Limits:  sandbox.Limits{Wall: askWall, MemoryBytes: askMemory, Processes: askProcesses},
		}
		for _, m := range mounts {
			spec.Mounts = append(spec.Mounts, sandbox.Mount{Source: m.Source, Target: m.Target})
		}
		process, err := host.Start(ctx, spec, sandbox.IO{Stdout: &answer, Stderr: &answer})
		if err != nil {
			return nil // the program is missing or can't be executed
		}
		exit, err := process.Wait()
		if err != nil || exit.End != sandbox.Exited || exit.Code != 0 {
			return nil
		}
		return answer.bytes
	}
}

// A begin keeps the first askBytes bytes and discards the rest. A program of an image is not
// trusted; it may print without end until askWall.
type begin struct {
	mu    sync.Mutex
	bytes []byte
}

// Write never fails. It may be called by two goroutines, one for each stream.
func (b *begin) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.bytes = append(b.bytes, p[:min(len(p), askBytes-len(b.bytes))]...)
	return len(p), nil
}

// capabilities lists the images, each with the languages that run in it.
func (all images) capabilities(c *config) []server.Image {
	var list []server.Image
	for _, i := range all.used {
		one := server.Image{Name: i.Name, Source: c.Images[i.Name].Image}
		if one.Source == "" {
			one.Source = i.Dir
		}
		for _, what := range append([]string{defaultRuntime}, runtime.Languages()...) {
			if c.Runtimes[what] == i.Name {
				one.Runtimes = append(one.Runtimes, what)
			}
		}
		list = append(list, one)
	}
	return list
}
