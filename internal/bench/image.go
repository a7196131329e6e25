package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/skillrun/skillrun/internal/lazyregexp"
)

// imageConfig is coldConfig with a root file system for all programs that are not of a language.
const imageConfig = coldConfig + "images: {small: {rootfs: root}}\nruntimes: {default: small}\n"

// inImage compares a cold `true` in an image with one in the host's root file system. Both daemons run at the
// same time, so that their requests take turns.
func inImage(r *run, rows rowSet) error {
	dir, err := r.prepare("image", imageConfig)
	if err != nil {
		return err
	}
	if err := copyProgram(r.ctx, trueProgram.bare[0], filepath.Join(dir, "root")); err != nil {
		return err
	}
	image, err := r.start(dir)
	if err != nil {
		return err
	}
	host, err := r.startNew("host", coldConfig)
	if err != nil {
		return errors.Join(err, image.stop())
	}
	err = r.against("cold-true-image", rows["cold-true-image-p50"],
		func() error { return trueProgram.request(r.ctx, image.client) },
		func() error { return trueProgram.request(r.ctx, host.client) })
	return errors.Join(err, image.stop(), host.stop())
}

// library matches the path of a library in a line of ldd.
var library = lazyregexp.New(`(?m)(/\S+) \(0x`)

// copyProgram copies a program and its libraries into a root file system, at the same paths.
func copyProgram(ctx context.Context, program, root string) error {
	libraries, err := exec.CommandContext(ctx, "ldd", program).CombinedOutput()
	if err != nil && !strings.Contains(string(libraries), "not a dynamic executable") {
		return fmt.Errorf("ldd %s: %w: %s", program, err, libraries)
	}
	paths := []string{program}
	for _, m := range library.FindAllStringSubmatch(string(libraries), -1) {
		paths = append(paths, m[1])
	}
	for _, path := range paths {
		file, err := os.ReadFile(path)
		to := filepath.Join(root, path)
		if err = errors.Join(err, os.MkdirAll(filepath.Dir(to), 0o755), os.WriteFile(to, file, 0o755)); err != nil {
			return err
		}
	}
	return nil
}
